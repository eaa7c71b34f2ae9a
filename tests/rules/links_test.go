//go:build linux && cgo

package rules

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// machine returns an NVML script with GPUs of a model. The GPUs in down have no active links.
func machine(gpus int, model string, down ...int) []string {
	script := []string{fmt.Sprint("gpus ", gpus)}
	for i := range gpus {
		script = append(script, fmt.Sprintf("gpu %d set name %s", i, model))
		for link := range 18 {
			if slices.Contains(down, i) {
				script = append(script, fmt.Sprintf("gpu %d set nvlink.%d down", i, link))
			}
		}
	}
	return script
}

const (
	sxm  = "NVIDIA H100 80GB HBM3"
	pcie = "NVIDIA A100-PCIE-40GB" // has NVLinks only with a bridge
)

// linkCases are machines as NVML reports them. After ten minutes, later replaces script if it is not nil.
var linkCases = []struct {
	name          string
	script, later []string
	watched       []string // GPUs that get the verdict watch with the reason links_down, and fire GPUNVLinksDown
}{
	{name: "all links of one GPU are down", script: machine(8, sxm), later: machine(8, sxm, 3), watched: []string{"3"}},
	{name: "all links of one GPU are down from the start", script: machine(8, sxm, 3), watched: []string{"3"}},
	{name: "all links of two GPUs are down", script: machine(8, sxm, 3, 5), watched: []string{"3", "5"}},
	{name: "links of a GPU come up", script: machine(8, sxm, 3), later: machine(8, sxm)},
	{name: "one link is down", script: append(machine(8, sxm), "gpu 3 set nvlink.5 down")},
	{name: "all links of all GPUs are down", script: machine(4, sxm, 0, 1, 2, 3)},
	{name: "no bridge", script: machine(4, pcie, 0, 1, 2, 3)},
	{name: "one of two pairs has a bridge", script: machine(4, pcie, 2, 3)},
	{name: "one of two bridges fails", script: machine(4, pcie), later: machine(4, pcie, 2, 3),
		watched: []string{"2", "3"}},
	{name: "one bridged GPU has no link", script: machine(4, pcie, 2), watched: []string{"2"}},
	{name: "MIG mode", script: append(machine(4, sxm, 1), "gpu 1 mig", "gpu 1 instance 9 0 1g.10gb 9984")},
	{name: "a GPU that has no links", script: append(machine(4, sxm), "gpu 1 set nvlinks 0")},
	{name: "a GPU whose links cannot be read", script: machine(4, sxm),
		later: append(machine(4, sxm, 1), "fail nvmlDeviceGetNvLinkState 999 1")},
}

// Exactly the GPUs in watched get the verdict watch with the reason links_down, and fire GPUNVLinksDown.
func TestLinksDownUnderNVML(t *testing.T) {
	const minutes = 30
	library, err := fakenvml.Build(t.TempDir())
	fakenvml.Need(t, err)
	const fired = `group by (alertname, node, gpu) (` +
		`ALERTS{alertstate="firing",alertname=~"GPUNVLink.*|GPUFabric.*|RackFabric.*"})`
	u := unitTest{Name: "links", Interval: "1m", Exprs: []query{{Expr: fired, EvalTime: fmt.Sprint(minutes-1, "m")}}}
	for _, c := range linkCases {
		t.Run(c.name, func(t *testing.T) {
			var watched []string
			series := map[string][]string{}
			linkPages(t, library, c.script, c.later, minutes, func(minute int, page []byte) {
				for s := range prom.Samples(t, page) {
					name, labels := s.Labels.Get("__name__"), &s.Labels
					if name == "dcgm_exporter_gpu_verdict" && minute == minutes-1 &&
						labels.Get("reason") == "links_down" {
						watched = append(watched, labels.Get("gpu"))
						if v := labels.Get("verdict"); v != verdict.Watch {
							t.Errorf("GPU %s: verdict = %s, want watch", labels.Get("gpu"), v)
						}
					}
					if name == "DCGM_EXP_FABRIC_STATE" {
						key := strings.Replace(string(s.Series), "{", fmt.Sprintf("{node=%q,", c.name), 1)
						missed := slices.Repeat([]string{"_"}, minute-len(series[key]))
						series[key] = append(append(series[key], missed...), strconv.FormatFloat(s.Value, 'g', -1, 64))
					}
				}
			})
			if d := diff.Diff(c.watched, watched); d != "" {
				t.Errorf("GPUs with verdict watch (-want +got):\n%s", d)
			}
			for s, values := range series {
				u.Input = append(u.Input, input{Series: s, Values: strings.Join(values, " ")})
			}
			for _, id := range c.watched {
				labels := fmt.Sprintf(`{alertname="GPUNVLinksDown",node=%q,gpu=%q}`, c.name, id)
				u.Exprs[0].Samples = append(u.Exprs[0].Samples, map[string]any{"labels": labels, "value": 1})
			}
		})
	}
	file := testFile{RuleFiles: []string{"alerts-gpu.yml"}, Evaluation: "1m", Tests: []unitTest{u}}
	file.RuleFiles = file.rules(t, nil)
	promtool(t, "test", "rules", writeYAML(t, file))
}

// linkPages calls f with one page for each minute. The fake NVML library plays script. If later is not nil, the library
// plays it from minute 10.
func linkPages(t *testing.T, library string, script, later []string, minutes int, f func(minute int, page []byte)) {
	t.Helper()
	requests, _, err := counters.Parse(bytes.NewReader(shipped(t, etc.HealthName)), etc.HealthName)
	if err != nil {
		t.Fatal(err)
	}
	world := fakenvml.NewWorld(t, script...)
	plan := counters.NewPlan(requests, gpu.Plan{Interval: time.Minute, Devices: gpu.Selector{Flex: true}})
	s, err := nvml.New(library).Open(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	builder := snapshot.NewBuilder(s.Topology(), plan, []snapshot.Deriver{&snapshot.Facts{}, &verdict.Judge{}})
	encoder := exposition.NewEncoder(exposition.Options{Hostname: "node"})
	batch, begin := &gpu.Batch{}, time.Now()
	for minute := range minutes {
		if minute == 10 && later != nil {
			world.Play(t, later...)
		}
		batch.Reset()
		if err := s.Read(t.Context(), gpu.ReadRequest{}, batch); err != nil {
			t.Fatal(err)
		}
		elapsed := time.Duration(minute) * time.Minute
		now := begin.Add(elapsed)
		for i := range batch.Samples {
			batch.Samples[i].Time = now.UnixNano()
		}
		reading := snapshot.Reading{Batch: batch, Begin: now, Now: now, Elapsed: elapsed}
		f(minute, encoder.Encode(builder.Build(reading)).Bytes())
	}
}
