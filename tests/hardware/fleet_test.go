//go:build gpu

package hardware

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	running "github.com/gpu-telemetry/dcgm-exporter/tests/fake/exporter"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// patience bounds every wait. It is generous on purpose: no test measures speed.
const patience = 60 * time.Second

// ask returns the output of nvidia-smi. If nvidia-smi fails, it logs the error and returns "".
func ask(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("nvidia-smi", args...).CombinedOutput()
	if err != nil {
		t.Logf("Comparison skipped: nvidia-smi %s failed: %v", strings.Join(args, " "), err)
		return ""
	}
	return string(out)
}

// said returns the values that nvidia-smi -q prints for a GPU, by name. If heading is not empty, only values below the
// heading are returned. If a name occurs several times, its first value is returned.
func said(t *testing.T, index uint32, heading string) map[string]string {
	t.Helper()
	lines := map[string]string{}
	depth := -1 // indentation of the heading, once found
	for line := range strings.Lines(ask(t, "-q", "-i", strconv.Itoa(int(index)))) {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		name, value, isValue := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case heading != "" && !isValue && name == heading:
			depth = indent
		case depth >= 0 && indent <= depth:
			return lines
		case isValue && (heading == "" || depth >= 0):
			if _, twice := lines[name]; !twice {
				lines[name] = strings.TrimSpace(value)
			}
		}
	}
	return lines
}

// A reading holds the samples of a Read, by entity and field.
type reading struct {
	at     time.Time
	values map[gpu.Entity]map[gpu.FieldID][]gpu.Sample
}

func (r reading) number(e gpu.Entity, id gpu.FieldID) (float64, bool) {
	list := r.values[e][id]
	if len(list) == 0 {
		return 0, false
	}
	return list[len(list)-1].Value.Number()
}

func readAll(t *testing.T, s *nvml.Session, plan *gpu.Plan) reading {
	t.Helper()
	var b gpu.Batch
	r := reading{time.Now(), map[gpu.Entity]map[gpu.FieldID][]gpu.Sample{}}
	if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
		t.Fatalf("Read: %v", err)
	}
	newest := slices.DeleteFunc(b.Samples, func(x gpu.Sample) bool { return plan.Fields[x.Field].AllSamples })
	for _, x := range slices.Concat(b.Trails, newest) {
		e, id := s.Topology().Devices[x.Row].Entity, plan.Fields[x.Field].ID
		if r.values[e] == nil {
			r.values[e] = map[gpu.FieldID][]gpu.Sample{}
		}
		r.values[e][id] = append(r.values[e][id], x)
	}
	return r
}

// whole returns the GPUs of a session.
func whole(s *nvml.Session) []gpu.Device {
	var list []gpu.Device
	for _, d := range s.Topology().Devices {
		if d.Entity.Kind == gpu.KindGPU {
			list = append(list, d)
		}
	}
	return list
}

func TestNVMLFabric(t *testing.T) {
	plan := planOf(t, 170, 171, 172, 173, 174)
	s := openNVML(t, plan)
	now := readAll(t, s, plan)
	known := 0
	for _, d := range whole(s) {
		state, ok := now.number(d.Entity, 170)
		if !ok {
			continue
		}
		known++
		if state < 0 || state > 4 {
			t.Errorf("%v: fabric state = %v, want 0 to 4", d.Entity, state)
		}
		fabric := said(t, d.NVMLIndex, "Fabric")
		words := map[string][]float64{"N/A": {0}, "Not Started": {1}, "In Progress": {2}, "Completed": {3, 4}}
		if want, ok := words[fabric["State"]]; ok && state != want[0] && state != want[len(want)-1] {
			t.Errorf("%v: fabric state = %v, nvidia-smi reports %q", d.Entity, state, fabric["State"])
		}
		if want := fabric["ClusterUUID"]; want != "" && want != "N/A" {
			if got := now.values[d.Entity][172]; len(got) != 1 || !strings.EqualFold(got[0].Value.String(), want) {
				t.Errorf("%v: cluster = %v, nvidia-smi reports %s", d.Entity, got, want)
			}
		}
		if want, err := strconv.ParseFloat(fabric["CliqueId"], 64); err == nil {
			if got, _ := now.number(d.Entity, 173); got != want {
				t.Errorf("%v: clique = %v, nvidia-smi reports %v", d.Entity, got, want)
			}
		}
	}
	if known == 0 {
		absent(t, "REQUIRE_TELLING", "fabric-unknown", errors.New("this driver does not report the fabric"))
	}
}

// TestNVMLPlacement checks that each GPU has a CPU affinity, and the NUMA node that the kernel reports. Each pair of
// GPUs must have a peer state, unless the read reports a fault.
func TestNVMLPlacement(t *testing.T) {
	plan := planOf(t, 150)
	plan.Placement, plan.Peers = true, true
	s := openNVML(t, plan)
	gpus := whole(s)
	for _, d := range gpus {
		if d.Place == nil {
			t.Errorf("%v: no placement, want one", d.Entity)
			continue
		}
		bus := strings.ToLower(d.PCIBusID)
		folder := filepath.Join("/sys/bus/pci/devices", bus[len(bus)-len("0000:00:00.0"):])
		node, err := os.ReadFile(filepath.Join(folder, "numa_node"))
		if err != nil {
			t.Logf("%v: comparison with the kernel skipped: %v", d.Entity, err)
			continue
		}
		// on a machine with only one NUMA node, the kernel may report -1, and NVML 0
		if want, err := strconv.Atoi(strings.TrimSpace(string(node))); err == nil && want >= 0 &&
			d.Place.NUMANode >= 0 && want != d.Place.NUMANode {
			t.Errorf("%v: NUMA node = %d, the kernel reports %d", d.Entity, d.Place.NUMANode, want)
		}
		if d.Place.CPUs == "" {
			t.Errorf("%v: no CPU affinity", d.Entity)
		}
	}
	var b gpu.Batch
	if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
		t.Fatal(err)
	}
	if want := len(gpus) * (len(gpus) - 1); len(b.Peers) != want && len(b.Faults) == 0 {
		t.Errorf("peer states = %d without a fault, want %d", len(b.Peers), want)
	}
}

// cells returns the connections in a matrix of GPUs in nvidia-smi's format, keyed by pairs such as "GPU0 to 1".
func cells(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || !regexp.MustCompile(`^GPU\d+$`).MatchString(words[0]) {
			continue
		}
		for i, word := range words[1:] {
			if !regexp.MustCompile(`^(X|SYS|NODE|PHB|PXB|PIX|PSB|NV\d+)$`).MatchString(word) {
				break
			}
			found[words[0]+" to "+strconv.Itoa(i)] = word
		}
	}
	return found
}

func TestTopo(t *testing.T) {
	gpus := len(whole(openNVML(t, planOf(t, 150))))
	var out, log bytes.Buffer
	if code := command.Run(t.Context(), "topo", command.Process{
		Args: []string{"--source=nvml"}, Env: func(string) (string, bool) { return "", false },
		ReadFile: os.ReadFile, Out: &out, Err: &log,
	}); code != command.OK {
		t.Fatalf("exit code = %d, want 0: %s", code, &log)
	}
	ours := cells(out.String())
	if len(ours) != gpus*gpus {
		t.Errorf("matrix has %d cells for %d GPUs, want one for each pair:\n%s", len(ours), gpus, &out)
	}
	text := ask(t, "topo", "-m")
	theirs := cells(regexp.MustCompile(`\x1b\[\d+m`).ReplaceAllString(text, ""))
	for between := range theirs { // our matrix has no columns for network cards
		if i, err := strconv.Atoi(between[strings.LastIndexByte(between, ' ')+1:]); err == nil && i >= gpus {
			delete(theirs, between)
		}
	}
	if diff := cmp.Diff(theirs, ours); text != "" && diff != "" {
		t.Errorf("matrix (-nvidia-smi +ours):\n%s\n%s", diff, text)
	}
}

func TestNVMLRecoveryAction(t *testing.T) {
	plan := planOf(t, 1523)
	s := openNVML(t, plan)
	now := readAll(t, s, plan)
	words := map[string]float64{"None": 0, "GPU Reset": 1, "Reset": 1, "Node Reboot": 2, "Reboot": 2, "Drain P2P": 3,
		"Drain and Reset": 4}
	known := 0
	for _, d := range whole(s) {
		action, ok := now.number(d.Entity, 1523)
		if !ok {
			continue
		}
		known++
		if action < 0 || action > 5 {
			t.Errorf("%v: recovery action = %v, want 0 to 5", d.Entity, action)
		}
		word := said(t, d.NVMLIndex, "")["GPU Recovery Action"]
		if want, ok := words[word]; ok && want != action {
			t.Errorf("%v: recovery action = %v, nvidia-smi reports %q", d.Entity, action, word)
		}
	}
	if known == 0 {
		absent(t, "REQUIRE_TELLING", "recovery-action-unknown",
			errors.New("this driver does not report the recovery action"))
	}
}

// TestNVMLClockEventTimes reads clock event times, in nanoseconds, before and after nvidia-smi prints them in
// microseconds. They must agree to within a second. Between the reads, they must not decrease or grow faster than real
// time.
func TestNVMLClockEventTimes(t *testing.T) {
	counters := map[gpu.FieldID]string{1420: "SW Power Capping", 1421: "Sync Boost"}
	var ids []gpu.FieldID
	for id := range counters {
		ids = append(ids, id)
	}
	plan := planOf(t, ids...)
	s := openNVML(t, plan)
	first := readAll(t, s, plan)
	compared, known := 0, 0
	for _, d := range whole(s) {
		smi := said(t, d.NVMLIndex, "Clocks Event Reasons Counters")
		settle(t)
		second := readAll(t, s, plan)
		for id, name := range counters {
			before, ok := first.number(d.Entity, id)
			after, still := second.number(d.Entity, id)
			if ok != still {
				t.Errorf("%v: field %d has a value in only one of two reads, want it in both or none", d.Entity, id)
			}
			if !ok || !still {
				continue
			}
			known++
			// the driver updates the counter in steps, so it may grow by one step more than the elapsed time
			if grown, most := after-before, float64(second.at.Sub(first.at)+time.Second); grown < 0 || grown > most {
				t.Errorf("%v: field %d grew by %v ns, want 0 to %v ns", d.Entity, id, grown, most)
			}
			micros, err := strconv.ParseFloat(strings.TrimSuffix(smi[name], " us"), 64)
			if err != nil || !strings.HasSuffix(smi[name], " us") {
				continue
			}
			compared++
			if micros < before/1000-1e6 || micros > after/1000+1e6 {
				t.Errorf("%v: field %d was %v ns before and %v ns after nvidia-smi reported %s", d.Entity, id, before,
					after, smi[name])
			}
		}
	}
	if known == 0 {
		absent(t, "REQUIRE_TELLING", "clock-event-times-unknown",
			errors.New("this driver does not report the clock event counters"))
	}
	t.Logf("compared %d of %d values with nvidia-smi", compared, known)
}

// held returns the device files of the driver that this process has open.
func held() []string {
	var files []string
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if file, err := os.Readlink(link); err == nil && strings.HasPrefix(file, "/dev/nvidia") {
			files = append(files, file)
		}
	}
	return files
}

// The exporter serves every GPU. When it exits, it closes all device files of the driver.
func TestExitClosesDriver(t *testing.T) {
	own := openNVML(t, planOf(t, 150))
	gpus := len(whole(own))
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	e := running.Start(t, patience, app.Process{Args: []string{
		"--source=nvml", "--collect-interval=500", "--collectors=" +
			filepath.Join("..", "..", "etc", "default-counters.csv"),
	}})
	page := prom.Await(t, patience, "http://"+e.Address+"/metrics", "DCGM_FI_DEV_GPU_TEMP{")
	if n := strings.Count(page, "\nDCGM_FI_DEV_GPU_TEMP{"); n != gpus {
		t.Errorf("temperature series = %d, want %d", n, gpus)
	}
	if len(held()) == 0 {
		t.Log("the exporter has no device files of the driver open, so their closing is not tested")
	}
	e.Cancel()
	if err := <-e.Result; err != nil {
		t.Error(err)
	}
	if open := held(); len(open) > 0 {
		t.Errorf("device files open after exit = %v, want none", open)
	}
}
