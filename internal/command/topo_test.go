package command_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

var update = flag.Bool("update", false, "update the golden files")

// The nodes differ in topology: NVLink switches, NVLink bridges, PCIe switches and sockets, superchips, and a single
// GPU.
func TestMatrix(t *testing.T) {
	for _, node := range []string{"h100x8", "a100-mig", "mixed", "grace-hopper", "single"} {
		t.Run(node, func(t *testing.T) {
			w := &world{}
			if code := command.Run(t.Context(), "topo", w.process("--source=sim", "--sim-node="+node)); code != command.OK {
				t.Fatalf("exit code = %d, want 0; stderr: %s", code, &w.Err)
			}
			golden := filepath.Join("testdata", "topo-"+node+".txt")
			if *update {
				if err := os.WriteFile(golden, w.Out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), w.Out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// silent is a source that does not report how its GPUs are connected.
type silent struct{ topology *gpu.Topology }

func (s silent) Open(context.Context, *gpu.Plan) (collector.Session, error) { return s, nil }
func (s silent) Topology() *gpu.Topology                                    { return s.topology }
func (s silent) Done() <-chan struct{}                                      { return nil }
func (s silent) Err() error                                                 { return nil }
func (s silent) Close() error                                               { return nil }
func (s silent) Read(_ context.Context, _ gpu.ReadRequest, b *gpu.Batch) error {
	for row := range s.topology.Devices {
		b.Add(row, 0, gpu.Int(40), time.Now())
	}
	return nil
}

func TestPlacementThatIsNotReported(t *testing.T) {
	device := func(id uint32, place *gpu.Place) gpu.Device {
		return gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: id, Place: place}
	}
	topology := gpu.NewTopology([]gpu.Device{
		device(0, &gpu.Place{NUMANode: -1, CPUs: "0-7"}), device(1, nil), device(2, &gpu.Place{NUMANode: 3}),
	})
	topology.Pairs = []gpu.Pair{{A: 0, B: 1, Path: gpu.PathSwitches}, {A: 0, B: 2}}
	run := func(topology *gpu.Topology) (int, *world) {
		w := &world{Open: func(context.Context, *config.Config, *gpu.Plan) (app.Backend, error) {
			return app.Backend{Source: silent{topology}}, nil
		}}
		return command.Run(t.Context(), "topo", w.process("--source=sim")), w
	}
	code, w := run(topology)
	want := []string{"GPU0 GPU1 GPU2 CPU Affinity NUMA Affinity", "GPU0 X PXB N/A 0-7 N/A", "GPU1 PXB X N/A N/A N/A", "GPU2 N/A N/A X N/A 3"}
	lines := strings.Split(w.Out.String(), "\n")
	for i := range want {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want[i] || code != command.OK {
			t.Errorf("exit code = %d, want 0; line %d = %q, want %q", code, i, got, want[i])
		}
	}
	code, w = run(gpu.NewTopology(nil))
	if want := "dcgm-exporter topo: unavailable: the source has no GPU, or --devices selects none of them\n"; code != command.Faulty || w.Err.String() != want {
		t.Errorf("exit code = %d, stderr = %q; want %d, %q", code, &w.Err, command.Faulty, want)
	}
}
