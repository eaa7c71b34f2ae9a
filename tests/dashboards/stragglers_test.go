package dashboards

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// busyDevices returns a world in which the owner's devices have the given utilizations for an hour.
func busyDevices(owner labels.Labels, utilization ...float64) *world {
	w := &world{Storage: prom.NewStorage(), begin: time.Unix(1_000_000_000, 0)}
	w.end = w.begin.Add(time.Hour)
	for at := w.begin; !at.After(w.end); at = at.Add(scrapeInterval) {
		for i, v := range utilization {
			instance := fmt.Sprint("n", i/8+1)
			add := func(name string, v float64, more ...string) {
				metric := func() labels.Labels {
					b := labels.NewBuilder(labels.FromStrings(more...))
					return b.Set("__name__", name).Set("job", "gpu").Set("instance", instance).Labels()
				}
				w.Append(fmt.Sprint(instance, name, more), metric, at, v)
			}
			device := []string{"gpu", strconv.Itoa(i % 8), "UUID", fmt.Sprint("GPU-", i)}
			owner.Range(func(l labels.Label) { device = append(device, l.Name, l.Value) })
			add("dcgm_pod_gpu_utilization_ratio", v, device...)
			add("dcgm_exporter_build_info", 1)
			add("DCGM_FI_DEV_GPU_TEMP", 50, "hostname", instance, "gpu", strconv.Itoa(i%8))
		}
	}
	return w
}

// TestStragglersAreThoseOfTheAlert checks that the dashboards list the same GPUs for which GPUStraggler fires.
func TestStragglersAreThoseOfTheAlert(t *testing.T) {
	pod := labels.FromStrings("namespace", "ns", "pod", "train-0", "container", "main")
	job := labels.FromStrings("hpc_job", "4711")
	for _, tt := range []struct {
		name        string
		owner       labels.Labels
		utilization []float64
		want        []string // instance and GPU
	}{
		{"far below the median", pod, []float64{0.5, 0.9, 0.9, 0.9}, []string{"n1 0"}},
		{"close to the median", pod, []float64{0.55, 0.9, 0.9, 0.9}, nil},
		{"three GPUs", pod, []float64{0.1, 0.9, 0.9}, nil},
		{"a mostly idle job", pod, []float64{0.05, 0.2, 0.2, 0.2}, nil},
		{"a job on two nodes", job, []float64{0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.2}, []string{"n2 1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := busyDevices(tt.owner, tt.utilization...)
			queries := map[string]string{
				"fleet.json":    filled(find(t, "fleet", "Stragglers", "table").Targets[0].Expr, ".*"),
				"workload.json": filled(find(t, "workload", "Stragglers", "table").Targets[0].Expr, ".*"),
			}
			for where, query := range w.questions(t) {
				if strings.HasSuffix(where, " GPUStraggler") {
					queries["the alert"] = query
				}
			}
			if len(queries) != 3 {
				t.Fatal("deployment/rules has no alert GPUStraggler")
			}
			for where, query := range queries {
				got := slices.Sorted(maps.Keys(w.query(t, query, w.end, "instance", "gpu")))
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("stragglers of %s (-want +got):\n%s", where, diff)
				}
			}
		})
	}
}
