package dcgm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// batch is the number of tests that run in one process, one after another. Larger batches load the library less often.
// Smaller ones balance the processes better.
const batch = 4

// MainParallel is like Main, for packages whose tests mostly wait for the engine. It runs the tests in several
// processes at the same time, each with its own library, script and counters. If flags select tests or request
// profiles, it is the same as Main.
func MainParallel(m *testing.M, processes int) int {
	if os.Getenv(envScript) != "" || !slices.ContainsFunc(os.Args[1:], isPlain) ||
		slices.ContainsFunc(os.Args[1:], isSpecial) {
		return Main(m)
	}
	if _, err := Build(); err != nil {
		return Main(m) // Main reports the error
	}
	code, err := runBatches(processes)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakedcgm:", err)
		return 1
	}
	return code
}

// plain matches the flags that go test passes when it runs all tests.
var plain = regexp.MustCompile(`^-test\.(paniconexit0|v|count=1|(timeout|v|short|testlogfile|parallel)=.*|short)$`)

func isPlain(arg string) bool   { return arg == "-test.paniconexit0" }
func isSpecial(arg string) bool { return !plain.MatchString(arg) }

// runBatches runs all tests in several processes and returns the exit code.
func runBatches(processes int) (int, error) {
	list, err := exec.Command("/proc/self/exe", "-test.list=.").Output()
	if err != nil {
		return 0, fmt.Errorf("list the tests: %w", err)
	}
	var names []string
	for name := range strings.Lines(string(list)) {
		if !strings.HasPrefix(name, "Benchmark") {
			names = append(names, regexp.QuoteMeta(strings.TrimSpace(name)))
		}
	}
	work, err := os.MkdirTemp("", "fakedcgm-shard-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	batches := slices.Collect(slices.Chunk(names, batch))
	next := make(chan int, len(batches))
	for i := range batches {
		next <- i
	}
	close(next)
	var (
		mu   sync.Mutex // guards code and the output
		code int
		all  sync.WaitGroup
	)
	for range processes {
		all.Go(func() {
			for i := range next {
				out, err := runBatch(batches[i], filepath.Join(work, fmt.Sprint(i)))
				mu.Lock()
				os.Stdout.Write(bytes.TrimSuffix(out, []byte("PASS\n")))
				if err != nil {
					fmt.Fprintf(os.Stdout, "tests %v: %v\n", batches[i], err)
					code = 1
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if code == 0 {
		fmt.Println("PASS")
	}
	return code, joinLogs(work, len(batches))
}

// runBatch runs the named tests in a new process and returns its output. log is the path of the process's test log.
func runBatch(names []string, log string) ([]byte, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]),
		func(arg string) bool { return strings.HasPrefix(arg, testLog) })
	cmd := exec.Command("/proc/self/exe", append(args, testLog+log, "-test.run=^("+strings.Join(names, "|")+")$")...)
	cmd.Env = append(os.Environ(), env...)
	return cmd.CombinedOutput()
}

// testLog is the flag that names a log of the files and variables that tests read. go test uses the log to decide
// whether a cached result is still valid.
const testLog = "-test.testlogfile="

// joinLogs merges the logs of all processes into the file that go test reads.
func joinLogs(work string, n int) error {
	i := slices.IndexFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, testLog) })
	if i < 0 {
		return nil
	}
	const header = "# test log\n"
	all := bytes.NewBufferString(header)
	for k := range n {
		log, err := os.ReadFile(filepath.Join(work, fmt.Sprint(k)))
		if err != nil {
			return err
		}
		all.Write(bytes.TrimPrefix(log, []byte(header)))
	}
	return os.WriteFile(strings.TrimPrefix(os.Args[i], testLog), all.Bytes(), 0o600)
}
