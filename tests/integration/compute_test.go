package integration

import (
	"flag"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

const computeCounters = `DCGM_FI_DRIVER_VERSION, label, Driver
DCGM_FI_DEV_GPU_TEMP, gauge, Temperature
DCGM_FI_DEV_FB_USED, gauge, Memory
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Activity
DCGM_FI_PROF_DRAM_ACTIVE, gauge, Memory activity
`

var valueOfSeries = regexp.MustCompile(`(?m) [^ ]+$`)

// seriesOf returns the series of a page's families about devices and their owners, without values.
func seriesOf(p page) string {
	var b strings.Builder
	for line := range strings.Lines(p.text) {
		if strings.HasPrefix(line, "DCGM_FI_") || strings.HasPrefix(line, "dcgm_pod_gpu_utilization") ||
			strings.HasPrefix(line, "dcgm_pod_gpu_info") || strings.HasPrefix(line, "dcgm_exporter_entity_up") {
			b.WriteString(valueOfSeries.ReplaceAllString(strings.TrimSuffix(line, "\n"), "") + "\n")
		}
	}
	return b.String()
}

// Without c there is not a word of compute instances; with it a divided instance keeps what its
// parts share, and they have the rest.
func TestComputeInstances(t *testing.T) {
	file := write(t, "counters.csv", computeCounters)
	for devices, golden := range map[string]string{"f": "testdata/divided-f.txt", "f+c": "testdata/divided-f+c.txt"} {
		t.Run(devices, func(t *testing.T) {
			e := start(t, sim(t, "divided", "", "-d", devices, "-n", "--collectors", file)...)
			// Processes are read once it is known who shares.
			p := e.until("owners", func(p page) bool {
				return len(p.series("dcgm_gpu_unattributed_memory_used_bytes", "gpu", "GPU_I_ID")) == 5
			})
			got := seriesOf(p)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
			if has := strings.Contains(p.text, "GPU_CI_ID"); has != (devices == "f+c") {
				t.Errorf("the page has compute instances: %t", has)
			}
			// Pods and the rest have what the device has, counted once. Of the instance that two pods share
			// that is not known without its compute instances.
			rest := p.series("dcgm_gpu_unattributed_utilization_ratio", "gpu", "GPU_I_ID")
			if _, known := rest["0/1"]; known != (devices == "f+c") || len(rest) < 4 {
				t.Errorf("the rest of instances: %v", rest)
			}
			sum, whole := 0.0, 0.0
			for _, family := range []string{"dcgm_pod_gpu_utilization_ratio", "dcgm_gpu_unattributed_utilization_ratio"} {
				for key, v := range p.series(family, "gpu", "GPU_I_ID", "pod") {
					sum += v * slicesOf[key[:strings.LastIndex(key, "/")]]
				}
			}
			for key, v := range p.series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "GPU_I_PROFILE", "gpu", "GPU_I_ID", "GPU_CI_ID") {
				ids := strings.Split(key, "/")
				if _, known := rest[ids[1]+"/"+ids[2]]; known {
					whole += v * float64(key[0]-'0') // 3g.20gb, 1c.3g.20gb
				}
			}
			if math.Abs(sum-whole) > 1e-9 || whole == 0 {
				t.Errorf("pods and the rest were active on %v slices, the devices on %v", sum, whole)
			}
		})
	}
}

// slicesOf are the compute slices of the GPU instances of the node.
var slicesOf = map[string]float64{"0/1": 4, "0/2": 3, "1/1": 3, "1/5": 2, "1/13": 1}

// A GPU is repartitioned, and an instance of it with it, under an exporter that serves compute
// instances: the page follows.
func TestRepartitionWithComputeInstances(t *testing.T) {
	t.Parallel()
	const series = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
	e := start(t, sim(t, "a100-mig", faults(`fault: repartition, at: 3s, for: 6s, devices: ["2"], mig: ["3g.20gb/1c+2c", "1g.5gb"]`),
		"-d", "g+i+c", "--collectors", write(t, "counters.csv", computeCounters))...)
	ofGPU2 := func(p page) []string {
		var keys []string
		for key := range p.series(series, "gpu", "GPU_I_PROFILE", "GPU_CI_ID") {
			if strings.HasPrefix(key, "2/") {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		return keys
	}
	e.collected()
	for _, want := range [][]string{{"2/1c.3g.20gb/0", "2/1g.5gb/", "2/2c.3g.20gb/1"}, {"2//"}} {
		p := e.until(strings.Join(want, " "), func(p page) bool { return slices.Equal(ofGPU2(p), want) || len(p.series("DCGM_FI_DEV_GPU_TEMP")) == 0 })
		if diff := cmp.Diff(want, ofGPU2(p)); diff != "" {
			t.Fatalf("activity of GPU 2 (-want +got):\n%s\n%s", diff, p.text)
		}
	}
}
