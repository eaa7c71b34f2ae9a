package process

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// patience bounds every wait; it is no claim about speed.
const patience = 60 * time.Second

var program string

// atOnce is how many of these tests run at once. They wait for a program nearly all of the time, so
// this is no matter of how many cores there are.
const atOnce = "6"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "dcgm-exporter")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "dcgm-exporter")
	build := exec.Command("go", "build", "-o", program, "../../cmd/dcgm-exporter")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// A running program and its log.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	urls chan string // one whenever it begins to listen
	exit chan error

	mu  sync.Mutex
	log strings.Builder
}

var listening = regexp.MustCompile(`msg=Listening url=http\S*(://\S+)/metrics`)

// start runs the program with the environment of the libraries that it is to find, and waits until
// it listens.
func start(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	r := &running{t: t, exit: make(chan error, 1), urls: make(chan string, 8)}
	r.cmd = exec.Command(program, append([]string{"--address=127.0.0.1:0", "-c", "200", "-f", "../../etc/default-counters.csv"}, args...)...)
	r.cmd.Env = append(os.Environ(), env...)
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			r.mu.Lock()
			fmt.Fprintln(&r.log, lines.Text())
			r.mu.Unlock()
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				r.urls <- "http" + m[1]
			}
		}
		r.exit <- r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // unless it has ended
		if t.Failed() {
			t.Logf("log:\n%s", r.said())
		}
	})
	r.listens()
	return r
}

// listens waits until the program begins to listen, and talks to it there.
func (r *running) listens() {
	r.t.Helper()
	select {
	case r.url = <-r.urls:
	case err := <-r.exit:
		r.t.Fatalf("ended: %v\n%s", err, r.said())
	case <-time.After(patience):
		r.t.Fatalf("does not listen:\n%s", r.said())
	}
}

func (r *running) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *running) get(path string) (int, string) {
	r.t.Helper()
	client := http.Client{Timeout: patience}
	resp, err := client.Get(r.url + path)
	if err != nil {
		r.t.Fatal(err)
	}
	return body(r.t, resp)
}

// body returns the status and the body of a response.
func body(t *testing.T, resp *http.Response) (int, string) {
	t.Helper()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// until scrapes until the page holds all of what is wanted.
func (r *running) until(wanted ...string) string {
	r.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		_, page := r.get("/metrics")
		missing := ""
		for _, w := range wanted {
			if !strings.Contains(page, w) {
				missing = w
			}
		}
		if missing == "" {
			return page
		}
		select {
		case <-tick.C:
		case err := <-r.exit:
			r.t.Fatalf("ended: %v", err)
		case <-deadline:
			r.t.Fatalf("never on the page: %s\n%s", missing, page)
		}
	}
}

// ends waits for the program's end and returns its exit code.
func (r *running) ends() int {
	r.t.Helper()
	select {
	case err := <-r.exit:
		var failed *exec.ExitError
		if err != nil && !errors.As(err, &failed) {
			r.t.Fatal(err)
		}
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		r.t.Fatal("does not end")
		return -1
	}
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// node is a script of eight GPUs, the last of which is cut by MIG.
func node() []string {
	lines := []string{
		"library 4.6.1", "engine 4.6.1", "driver 570.124.06", "nvml 12.570.124.06",
		"value any:* 100-999 int 40", "value any:* 1000-1100 double 0.5", "value any:* 1 text 570.124.06",
	}
	for g := range 8 {
		lines = append(lines, fmt.Sprintf("gpu %d uuid=GPU-%08d name=NVIDIA_H100 bus=00000000:%02X:00.0 index=%d minor=%d prof=1001,1004,1005,1009,1010", g, g, 0x1b+g, g, g))
	}
	return append(lines, "instance 50 gpu=7 nvml=9 profile=1g.10gb")
}

func TestOverDCGM(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"embedded": nil, "remote": {"--remote-hostengine-info=10.0.0.9:5555"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, env := fakedcgm.NewFor(t, node()...)
			r := start(t, env, args...)
			page := r.until(`dcgm_exporter_source_info{driver="570.124.06",library="4.6.1",source="dcgm"} 1`,
				`DCGM_FI_DEV_GPU_TEMP{gpu="7"`, `DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="7"`)
			if !strings.Contains(page, `GPU_I_PROFILE="1g.10gb",GPU_I_ID="9"`) {
				t.Errorf("no MIG instance on the page:\n%s", page)
			}

			// One GPU lost among eight.
			engine.Replace("index=3 minor=3", "index=3 minor=3 status=lost")
			page = r.until(`dcgm_exporter_entity_up{gpu="3",UUID="GPU-00000003",reason="lost"} 0`)
			if strings.Contains(page, `DCGM_FI_DEV_GPU_TEMP{gpu="3"`) || strings.Count(page, "\nDCGM_FI_DEV_GPU_TEMP{") != 7 {
				t.Errorf("not seven temperatures:\n%s", page)
			}

			// The engine dies and comes back as another one.
			engine.Restart()
			r.until(`dcgm_exporter_sessions_total{cause="lost"} 1`, `DCGM_FI_DEV_GPU_TEMP{gpu="7"`)

			r.signal(syscall.SIGTERM)
			if code := r.ends(); code != 0 {
				t.Errorf("exit code %d on SIGTERM", code)
			}
			for kind, open := range engine.Open() {
				if open != 0 {
					t.Errorf("%d open after the end: %s", open, kind)
				}
			}
		})
	}
}

func TestEngineDeadAtStart(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, append(node(), "down")...)
	r := start(t, env, "--remote-hostengine-info=10.0.0.9:5555")
	r.until("dcgm_exporter_collect_success 0", `dcgm_exporter_collect_failures_total{reason=`)
	if code, _ := r.get("/-/ready"); code != http.StatusOK {
		t.Errorf("/-/ready: %d: it serves its health", code)
	}
	engine.Remove("down")
	r.until("dcgm_exporter_collect_success 1", `DCGM_FI_DEV_GPU_TEMP{gpu="0"`)
}

func TestFrozenEngineEndsTheProcess(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, node()...)
	r := start(t, env, "--collect-hang-limit=3s")
	r.until("dcgm_exporter_collect_success 1")
	engine.Add("block dcgmGetLatestValues_v2", "block dcgmEntitiesGetLatestValues", "block dcgmGetGpuStatus")
	r.until("dcgm_exporter_collect_success 0", `dcgm_exporter_collect_failures_total{reason="timeout",stage="read"}`)
	if code := r.ends(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	if !strings.Contains(r.said(), "driver call does not return") {
		t.Errorf("it does not say why it ended:\n%s", r.said())
	}
}

func TestOverNVML(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := fakenvml.Build(dir); err != nil {
		fakenvml.Need(t, err)
	}
	world := fakenvml.NewFor(t, "gpus 2", "gpu 1 mig", "gpu 1 instance 9 0 1g.10gb 9984")
	r := start(t, append(world.Env(), "LD_LIBRARY_PATH="+dir))
	r.until(`source="nvml"} 1`, `DCGM_FI_DEV_GPU_TEMP{gpu="0"`, `GPU_I_PROFILE="1g.10gb",GPU_I_ID="9"`)
	world.Play(t, "gpus 2", "gpu 1 mig", "gpu 1 instance 9 0 1g.10gb 9984", "xid 0 62", "xid 0 45")
	r.until(`err_code="45"`)
	r.signal(syscall.SIGTERM)
	if code := r.ends(); code != 0 {
		t.Errorf("exit code %d on SIGTERM", code)
	}
	if n := world.OpenHandles(t); n != 0 {
		t.Errorf("%d handles open after the end", n)
	}
}

func TestSIGHUP(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "counters.csv")
	if err := os.WriteFile(file, []byte("DCGM_FI_DEV_GPU_TEMP, gauge, T\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, "--source=sim", "-f", file)
	r.until("\nDCGM_FI_DEV_GPU_TEMP{")
	if err := os.WriteFile(file, []byte("DCGM_FI_DEV_POWER_USAGE, gauge, P\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.signal(syscall.SIGHUP)
	r.until("\nDCGM_FI_DEV_POWER_USAGE{", "dcgm_exporter_config_last_reload_successful 1")
	if strings.Contains(r.said(), "take a restart") {
		t.Errorf("a change is reported as none:\n%s", r.said())
	}

	// Who changed the environment of the unit learns that this is not read.
	r.signal(syscall.SIGHUP)
	until(t, "a word that nothing has changed", func() bool {
		return strings.Contains(r.said(), "flags and variables are those of the start, and take a restart to change")
	})
	r.until(`dcgm_exporter_sessions_total{cause="reload"} 1`) // that of the change
}

// The exit codes of docs/operations.md, over all subcommands: 0 nothing to mend, 1 something to
// mend was found, 2 the command could not do its work.
func TestExitCodesOfSubcommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.csv")
	bad := filepath.Join(dir, "bad.csv")
	if err := os.WriteFile(bad, []byte("NO_SUCH_FIELD, gauge, H\nDCGM_FI_DEV_GPU_TEMP, gauge, T\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	noDriver := []string{"--source=nvml"} // there is none on this machine's path
	for _, c := range []struct {
		command     string
		args        []string // that it always gets
		more        []string // behind the flags
		noData      int
		unreadable  []string // what names a file that cannot be read
		unreadCode  int
		checksLines bool // 1 where a line cannot be used
	}{
		{command: "once", noData: 1, unreadable: []string{"-f", missing}, unreadCode: 2},
		{command: "topo", noData: 1, unreadable: []string{"--config-file", missing}, unreadCode: 2},
		{command: "doctor", noData: 1, unreadable: []string{"-f", missing}, unreadCode: 1}, // it is what it looks for
		{command: "check", noData: 1, unreadable: []string{"-f", missing}, unreadCode: 2, checksLines: true},
	} {
		t.Run(c.command, func(t *testing.T) {
			t.Parallel()
			code := func(want int, args ...string) {
				t.Helper()
				cmd := exec.Command(program, slices.Concat([]string{c.command}, c.args, args, c.more)...)
				cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
				text, err := cmd.CombinedOutput()
				if cmd.ProcessState == nil {
					t.Fatal(err)
				}
				if got := cmd.ProcessState.ExitCode(); got != want {
					t.Errorf("%v: exit code %d, want %d:\n%s", args, got, want, text)
				}
			}
			code(0, "--source=sim", "-f=../../etc/default-counters.csv", "--address=127.0.0.1:0")
			code(2, "--source=sim", "--no-such-flag")
			code(2, "--source=sim", "--collect-interval=soon")
			code(c.unreadCode, append([]string{"--source=sim"}, c.unreadable...)...)
			code(c.noData, append(noDriver, "-f=../../etc/default-counters.csv")...)
			if c.checksLines {
				code(1, "--source=sim", "-f", bad)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"wrong flag", []string{"--colectors=x"}, 1, "--collectors"},
		{"help", []string{"--help"}, 0, "Usage:"},
		{"help with subcommands", []string{"--help"}, 0, "\n  doctor          what works on"},
		{"help with examples", []string{"--help"}, 0, "\n  dcgm-exporter check my-counters.csv "},
		{"help with flags", []string{"--help"}, 0, "\n  --collectors, -f VALUE"},
		{"version", []string{"--version"}, 0, "dcgm-exporter"},
		{"check, good", []string{"check", "../../etc/default-counters.csv"}, 0, "0 lines not usable"},
		{"check, bad", []string{"check", "process_test.go"}, 1, "NOT COLLECTED"},
		{"fields", []string{"fields", "tensor"}, 0, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"},
		{"once", []string{"once", "--source=sim"}, 0, "DCGM_FI_DEV_GPU_TEMP{"},
		{"once, no such source", []string{"once", "--source=dcgm", "--remote-hostengine-info=10.0.0.9:70000"}, 2, "70000"},
		{"doctor", []string{"doctor", "--source=sim"}, 0, "source"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(program, c.args...)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.says) {
				t.Errorf("exit code %d, want %d; output, which should say %q:\n%s", code, c.code, c.says, out)
			}
		})
	}
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not seen: %s", what)
		}
	}
}

func (r *running) post(path string) (int, string) {
	r.t.Helper()
	client := http.Client{Timeout: patience}
	resp, err := client.Post(r.url+path, "", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return body(r.t, resp)
}
