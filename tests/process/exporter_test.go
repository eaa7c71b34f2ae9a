package process

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/reference"
)

// once returns what the subcommand once prints for a simulated node.
func once(t *testing.T, node string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, append([]string{"once", "--source=sim", "--sim-node=" + node}, args...)...).Output()
	if err != nil {
		t.Fatal(node, args, err)
	}
	return string(out)
}

// sizes returns the number of samples on a page, and in its largest family.
func sizes(p page) (total, largest int) {
	for _, samples := range p {
		total, largest = total+len(samples), max(largest, len(samples))
	}
	return total, largest
}

// Prometheus can parse the page of every simulated node. Each node is combined with one of the shipped counters files,
// so that every node and every file is used.
func TestPagesAreReadByPrometheus(t *testing.T) {
	t.Parallel()
	files, nodes := folder.Files(t, root, "etc/*.csv"), folder.Files(t, root, "internal/source/sim/data/nodes/*.yaml")
	if len(files) < 4 || len(nodes) < 8 {
		t.Fatalf("counters files = %v, want at least 4; simulated nodes = %v, want at least 8", files, nodes)
	}
	for i := range max(len(nodes), len(files)) {
		node, file := strings.TrimSuffix(filepath.Base(nodes[i%len(nodes)]), ".yaml"), files[i%len(files)]
		if n, _ := sizes(prom.Parse(t, once(t, node, "-f", file, "--vocabulary=both"))); n < 50 {
			t.Errorf("%s with %s: %d samples, want at least 50", node, file, n)
		}
	}
}

// The page of eight H100 GPUs with 144 NVLinks has at most 2,000 series, and at most 200 in a family, with the default,
// health and fleet counters files. Netdata rejects larger pages.
func TestPagesOfEightGPUsAreSmall(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"default", "health", "fleet"} {
		p := prom.Parse(t, once(t, "h100x8", "-f", root+"/etc/"+file+"-counters.csv"))
		total, largest := sizes(p)
		if n := len(p["DCGM_FI_DEV_GPU_TEMP"]); total > 2000 || largest > 200 || n != 8 {
			t.Errorf("%s: series = %d, want at most 2000; in the largest family = %d, want at most 200; "+
				"temperatures = %d, want 8", file, total, largest, n)
		}
	}
}

// The log says that the node is simulated. The node's series have the name of this machine and the version of the
// simulated driver.
func TestDemoNode(t *testing.T) {
	t.Parallel()
	r := simulate(t, "demo", nil, "--hostname-label=both")
	p := r.collected()
	if first, _, _ := strings.Cut(r.log.String(), "\n"); !strings.Contains(first, "SIMULATED") {
		t.Errorf("first log line = %s, want one that says the node is simulated", first)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for key := range p.By("DCGM_FI_DEV_POWER_USAGE", "hostname", "Hostname", "DCGM_FI_DRIVER_VERSION") {
		if want := host + "/" + host + "/570.124.06"; key != want {
			t.Errorf("host and driver labels = %q, want %q", key, want)
		}
	}
}

// No values are served without a driver. The log names the libraries and the counters file that were tried.
func TestAutomaticChoiceDoesNotPretend(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		material.Skip(t, "driver-present", errors.New("the test needs a machine without an NVIDIA driver"))
	}
	r := serve(t, nil, "-c", interval)
	p := r.sees("a failed attempt", func(p page) bool {
		return p.By("dcgm_exporter_collect_failures_total", "stage", "reason")["open/unavailable"] > 0
	})
	if n := len(p["DCGM_FI_DEV_GPU_TEMP"]); n != 0 {
		t.Errorf("temperatures served without a driver = %d, want 0", n)
	}
	if code, _ := r.get("/-/ready"); code != http.StatusOK {
		t.Errorf("/-/ready: status %d, want 200", code)
	}
	words := []string{"libdcgm.so", "libnvidia-ml.so"}
	if _, err := os.Stat("/etc/dcgm-exporter/default-counters.csv"); err != nil {
		words = append(words, "built-in", "/etc/dcgm-exporter/default-counters.csv")
	}
	for _, word := range words {
		if !r.logged(word) {
			t.Errorf("log does not contain %q", word)
		}
	}
}

// Exit codes are those in docs/operations.md. A subcommand exits with 0 if there is nothing to fix, 1 if it found
// something to fix, and 2 if it could not run.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	empty := t.TempDir() // a folder without libraries
	missing := filepath.Join(empty, "missing.csv")
	bad := write(t, "bad.csv", "NO_SUCH_FIELD, gauge, H\nDCGM_FI_DEV_GPU_TEMP, gauge, T\n")
	const file = "-f=" + root + "/etc/default-counters.csv"
	type row struct {
		args []string
		code int
		says []string
	}
	rows := []row{
		{[]string{"--colectors=x"}, 1, []string{"--colectors", "--collectors"}},
		{[]string{"--source=dcmg"}, 1, []string{"--source", "dcmg", "dcgm"}},
		{[]string{"--source=sim", "--sim-node=h10"}, 1, []string{"h10"}},
		{[]string{"--source=sim", "--address=" + taken.Addr().String()}, 1,
			[]string{taken.Addr().String(), "address already in use"}},
		{[]string{"--source=sim", "-f", missing}, 1, []string{missing, "no such file"}},
		{[]string{"--source=sim", "-f", write(t, "none.csv", "# nothing\n")}, 1, []string{"none.csv", "no usable counter"}},
		{[]string{"--help"}, 0, []string{"Usage:", "\n  doctor          show what works on",
			"\n  dcgm-exporter check my-counters.csv ", "\n  --collectors, -f VALUE"}},
		{[]string{"--version"}, 0, []string{"dcgm-exporter"}},
		{[]string{"fields", "tensor"}, 0, []string{"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"}},
		{[]string{"check", root + "/etc/default-counters.csv"}, 0, []string{"0 lines not usable"}},
		{[]string{"check", "--source=sim", bad}, 1, []string{"NOT COLLECTED"}},
		{[]string{"check", "--source=sim", "-f", bad}, 1, nil},
		{[]string{"check", "--source=sim", "-f", missing}, 2, nil},
		{[]string{"once", "--source=sim", "-f", missing}, 2, nil},
		{[]string{"once", "--source=dcgm", "-r=10.0.0.9:70000"}, 2, []string{"70000"}},
		{[]string{"topo", "--source=sim", "--config-file", missing}, 2, nil},
		{[]string{"doctor", "--source=sim", "-f", missing}, 1, nil}, // doctor reports the missing file
		{[]string{"doctor", "--source=sim", file}, 0, []string{"source"}},
	}
	for _, command := range []string{"once", "topo", "doctor", "check"} {
		rows = append(rows,
			row{[]string{command, "--source=sim", file, "--address=127.0.0.1:0"}, 0, nil},
			row{[]string{command, "--source=sim", "--no-such-flag"}, 2, nil},
			row{[]string{command, "--source=sim", "--collect-interval=soon"}, 2, nil},
			row{[]string{command, "--source=nvml", file}, 1, nil}) // no driver
	}
	for _, tt := range rows {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			r := begin(t, []string{"LD_LIBRARY_PATH=" + empty}, tt.args...)
			if code := r.ends(); code != tt.code {
				t.Errorf("exit code = %d, want %d", code, tt.code)
			}
			for _, text := range tt.says {
				if !r.logged(text) {
					t.Errorf("output does not contain %q", text)
				}
			}
		})
	}
}

// The first command of docs/simulator.md works in a folder that has the program and etc, like a clone after "make
// build".
func TestFirstSimulatedNode(t *testing.T) {
	t.Parallel()
	_, block, _ := strings.Cut(folder.Read(t, root, "docs/simulator.md"), "```\nmake build\n")
	script, _, found := strings.Cut(block, "\n```")
	if !found {
		t.Fatal("docs/simulator.md has no block that begins with make build")
	}
	clone := t.TempDir()
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"bin/dcgm-exporter": program, "etc": absolute + "/etc"} {
		path := filepath.Join(clone, link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-e", "-c", strings.Replace(script, "bin/dcgm-exporter", "exec bin/dcgm-exporter", 1))
	cmd.Dir, cmd.Env = clone, append(os.Environ(), "DCGM_EXPORTER_LISTEN=127.0.0.1:0", "KUBERNETES_SERVICE_HOST=")
	launch(t, cmd).listens().until(`DCGM_FI_DEV_GPU_TEMP{gpu="3"`)
}

// readDump returns the content of a dump. It returns "" while a compressed dump is still being written.
func readDump(t *testing.T, path string) string {
	t.Helper()
	page := folder.Read(t, path)
	if !strings.HasSuffix(path, ".gz") {
		return page
	}
	text, err := gzip.NewReader(strings.NewReader(page))
	if err != nil {
		return ""
	}
	all, err := io.ReadAll(text)
	if err != nil {
		return ""
	}
	return string(all)
}

// Pages are dumped to files. Dumps older than --dump-retention are deleted, including the JSON dumps of earlier
// releases. Newer dumps and other files are kept.
func TestDumps(t *testing.T) {
	t.Parallel()
	old, older := "snapshot-20200101T000000.000000000Z.prom", "snapshot-20190101T000000.000000000Z.json"
	fresh := time.Now().Add(-30 * time.Minute).UTC().Format("snapshot-20060102T150405.000000000Z.prom")
	others := []string{fresh, "notes.prom", "snapshot-20200101.prom"}
	for end, flag := range map[string]string{".prom.gz": "--dump-compression", ".prom": "--dump-compression=false"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{}
			for _, name := range append([]string{old, old + ".gz", older, older + ".gz"}, others...) {
				files[name] = "{}"
			}
			dir := folder.Of(t, files)
			r := simulate(t, "h100x8", []string{`fault: gpu-lost, at: 0s, for: 1h, devices: ["3"]`},
				"--dump-enabled", "--dump-directory="+dir, "--dump-retention=1h", flag)
			last := ""
			r.wait("a new dump, and old dumps deleted", func() bool {
				all, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, entry := range all {
					if !slices.Contains(others, entry.Name()) {
						names = append(names, entry.Name())
					}
				}
				if len(names) == 0 || len(all) != len(names)+len(others) || names[0] <= old+".gz" {
					return false
				}
				newest := names[len(names)-1]
				if !strings.HasSuffix(newest, end) {
					t.Errorf("newest dump is %s, want the suffix %s", newest, end)
				}
				last = readDump(t, filepath.Join(dir, newest))
				return strings.Contains(last, "\ndcgm_exporter_collect_success 1")
			})
			if n := strings.Count(last, "\nDCGM_FI_DEV_GPU_TEMP{"); n != 7 || !strings.Contains(last, `reason="lost"`) {
				t.Errorf("temperatures in the dump = %d, want 7, and reason=\"lost\" in the dump:\n%s", n, last)
			}
		})
	}
}

// If the dump folder cannot be written, the log says so once, and metrics are still served.
func TestDumpsNowhere(t *testing.T) {
	t.Parallel()
	r := simulate(t, "single", nil, "--dump-enabled", "--dump-directory="+filepath.Join(write(t, "file", ""), "dumps"))
	const last = "dcgm_exporter_collect_last_success_timestamp_seconds"
	first := r.collected().Value(last)
	r.sees("more cycles", func(p page) bool { return p.Value(last) > first+1 && len(p.By("DCGM_FI_DEV_GPU_TEMP")) == 1 })
	r.logs("Page dump failed", 1)
}

// labelPair matches a label of a series.
var labelPair = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)

// inOrder returns the lines of a page in alphabetical order. The labels of each line are sorted too.
func inOrder(page string) []string {
	var lines []string
	for line := range strings.Lines(page) {
		family, labels, ok := strings.Cut(line, "{")
		if end := strings.LastIndex(labels, "}"); ok && !strings.HasPrefix(line, "#") {
			pairs := slices.Sorted(slices.Values(labelPair.FindAllString(labels[:end], -1)))
			line = family + "{" + strings.Join(pairs, ",") + labels[end:]
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// TestReferencePages compares this exporter's pages, in strict compatibility mode, with pages that NVIDIA's exporter
// served for the same devices. Every HELP and TYPE line, label and number must be identical. The order of lines and
// labels may differ.
func TestReferencePages(t *testing.T) {
	t.Parallel()
	file := material.Path(t, "data/upstream/dcgm-exporter/default-counters.csv")
	tests := []struct {
		file string
		gpus int
		pods bool
	}{
		{"gpu1-default-nok8s.prom", 1, false},
		{"gpu8-default-k8s.prom", 8, true},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			theirs := material.Read(t, "data/reference-output/"+tt.file)
			_, env := fakedcgm.NewFor(t, reference.Engine(t, tt.gpus, string(theirs))...)
			args := []string{"-f", file, "--source=dcgm", "--compatibility=strict", "--hostname-label=hostname"}
			env = append(env, "NODE_NAME=vm")
			if tt.pods {
				var pods []*v1.PodResources
				for g, uuid := range reference.UUIDs() {
					main := kubelet.Container("main", "nvidia.com/gpu", uuid)
					pods = append(pods, kubelet.Pod(fmt.Sprintf("team-a/train-%d", g), main))
				}
				k := kubelet.Start(t, kubelet.Lists(pods...))
				args = append(args, "--kubernetes", "--pod-resources-kubelet-socket", k.Socket())
			}
			r := start(t, env, args...)
			want, got := inOrder(string(theirs)), []string{}
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
				if got = inOrder(r.scrape()); cmp.Equal(want, got) {
					return
				}
			}
			t.Errorf("page (-theirs +ours):\n%s", cmp.Diff(want, got))
		})
	}
}
