package operatorstate_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/operatorstate"
)

// A rig is a State with a node and a folder that a test changes.
type rig struct {
	state    *operatorstate.State
	registry *prometheus.Registry
	log      bytes.Buffer

	mu    sync.Mutex
	node  node.Node
	err   error
	calls int
}

func newRig(validations fs.FS) *rig {
	r := &rig{registry: prometheus.NewPedanticRegistry()}
	r.state = operatorstate.New(operatorstate.Options{
		Validations: validations, Registerer: r.registry, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Node: func(context.Context) (node.Node, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls++
			return r.node, r.err
		},
	})
	return r
}

func (r *rig) set(n node.Node, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.node, r.err = n, err
}

// page returns the series without HELP and TYPE.
func (r *rig) page(t *testing.T) string {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			t.Fatal(err)
		}
	}
	var series []string
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "#") {
			series = append(series, strings.TrimPrefix(line, "gpu_operator_"))
		}
	}
	return strings.Join(series, "")
}

// run runs the State in a bubble until the function returns.
func (r *rig) run(t *testing.T, during func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.state.Run(ctx)
	}()
	synctest.Wait()
	during()
	cancel()
	<-done
	if got := r.page(t); got != "" {
		t.Errorf("series outlive Run:\n%s", got)
	}
}

func wholeGPUs(n int) *gpu.Topology {
	var all []gpu.Device
	for i := range uint32(n) {
		all = append(all, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: i}, UUID: "GPU-" + string('a'+rune(i)), Model: "NVIDIA H100 80GB HBM3"})
	}
	return gpu.NewTopology(all)
}

// cut is one GPU in instances of a profile, with or without a row of its own.
func cut(profile string, n int, parent bool) *gpu.Topology {
	var all []gpu.Device
	if parent {
		all = append(all, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-a", Model: "NVIDIA H100 80GB HBM3"})
	}
	for i := range uint32(n) {
		all = append(all, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 10 + i}, UUID: "GPU-a", Model: "NVIDIA H100 80GB HBM3", InstanceID: i, Profile: profile})
	}
	return gpu.NewTopology(all)
}

func aNode(allocatable string, labels ...string) node.Node {
	n := node.Node{Labels: map[string]string{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, Allocatable: map[string]string{"cpu": "64", "nvidia.com/hostdev": "2"}}
	for pair := range strings.FieldsSeq(allocatable) {
		name, count, _ := strings.Cut(pair, "=")
		n.Allocatable["nvidia.com/"+name] = count
	}
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		n.Labels["nvidia.com/"+name] = value
	}
	return n
}

func validated(names ...string) fstest.MapFS {
	dir := fstest.MapFS{".": {Mode: fs.ModeDir | 0o755}}
	for _, n := range names {
		dir[n] = &fstest.MapFile{}
	}
	return dir
}

// no is a folder that is not there.
type no struct{}

func (no) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func TestSeries(t *testing.T) {
	const ready = "operand_ready{operand=\"cuda\"} 0\noperand_ready{operand=\"driver\"} 1\noperand_ready{operand=\"plugin\"} 0\noperand_ready{operand=\"toolkit\"} 1\n"
	for name, tc := range map[string]struct {
		node     node.Node
		hardware *gpu.Topology
		want     string
	}{
		"as intended":                   {aNode("gpu=2"), wholeGPUs(2), "resource_allocatable{resource=\"nvidia.com/gpu\"} 2\nresource_expected{resource=\"nvidia.com/gpu\"} 2\n"},
		"one unhealthy":                 {aNode("gpu=1"), wholeGPUs(2), "resource_allocatable{resource=\"nvidia.com/gpu\"} 1\nresource_expected{resource=\"nvidia.com/gpu\"} 2\n"},
		"the plugin has not registered": {aNode(""), wholeGPUs(2), "resource_expected{resource=\"nvidia.com/gpu\"} 2\n"},
		"shared and renamed": {aNode("gpu=0 gpu.shared=4", "gpu.replicas=4", "gpu.sharing-strategy=mps"), wholeGPUs(1),
			"resource_allocatable{resource=\"nvidia.com/gpu\"} 0\nresource_allocatable{resource=\"nvidia.com/gpu.shared\"} 4\n" +
				"resource_expected{resource=\"nvidia.com/gpu\"} 0\nresource_expected{resource=\"nvidia.com/gpu.shared\"} 4\n" +
				"resource_replicas{resource=\"nvidia.com/gpu.shared\",strategy=\"mps\"} 4\n"},
		"success that lies": {aNode("gpu=1 mig-1g.10gb=0", "mig.strategy=mixed", "mig.config=all-1g.10gb", "mig.config.state=success"), cut("1g.10gb", 7, true),
			"mig_config_state{config=\"all-1g.10gb\",state=\"success\"} 1\n" +
				"resource_allocatable{resource=\"nvidia.com/gpu\"} 1\nresource_allocatable{resource=\"nvidia.com/mig-1g.10gb\"} 0\n" +
				"resource_expected{resource=\"nvidia.com/gpu\"} 0\nresource_expected{resource=\"nvidia.com/mig-1g.10gb\"} 7\n"},
		"media extensions, without a row of the GPU": {aNode("mig-1g.10gb.me=1", "mig.strategy=mixed"), cut("1g.10gb+me", 1, false),
			"resource_allocatable{resource=\"nvidia.com/mig-1g.10gb.me\"} 1\nresource_expected{resource=\"nvidia.com/mig-1g.10gb.me\"} 1\n"},
		"pending while the driver is released": {aNode("gpu=0", "mig.config=all-1g.10gb", "mig.config.state=pending"), nil,
			"mig_config_state{config=\"all-1g.10gb\",state=\"pending\"} 1\nresource_allocatable{resource=\"nvidia.com/gpu\"} 0\n"},
		"the strategy is not said":      {aNode("gpu=7"), cut("1g.10gb", 7, true), "resource_allocatable{resource=\"nvidia.com/gpu\"} 7\n"},
		"an instance without a profile": {aNode("gpu=7", "mig.strategy=single"), cut("", 7, true), "resource_allocatable{resource=\"nvidia.com/gpu\"} 7\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(validated("driver-ready", "toolkit-ready"))
				r.set(tc.node, nil)
				r.state.Hardware(tc.hardware, 0)
				r.run(t, func() {
					got := r.page(t)
					// The families come in the order of their names.
					at := strings.Index(tc.want, "resource_")
					want := tc.want[:at] + ready + tc.want[at:]
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				})
			})
		})
	}
}

// What is old is forgotten: the node's answer after three minutes, the hardware when its page is.
func TestOldIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(no{})
		r.set(aNode("gpu=2"), nil)
		r.state.Hardware(wholeGPUs(2), 45*time.Second)
		r.run(t, func() {
			const allocatable, expected = "resource_allocatable{resource=\"nvidia.com/gpu\"} 2\n", "resource_expected{resource=\"nvidia.com/gpu\"} 2\n"
			at := func(when, want string) {
				t.Helper()
				synctest.Wait()
				if got := r.page(t); got != want {
					t.Errorf("%s:\n%s\nwant\n%s", when, got, want)
				}
			}
			at("at first", allocatable+expected)
			r.set(node.Node{}, errors.New("no route to host"))
			time.Sleep(61 * time.Second)
			at("the hardware is old", allocatable)
			time.Sleep(110 * time.Second)
			at("the node does not answer", allocatable)
			time.Sleep(20 * time.Second)
			at("the answer is old", "")
			r.set(aNode("gpu=1"), nil)
			time.Sleep(15 * time.Second)
			at("it answers again", strings.ReplaceAll(allocatable, " 2", " 1"))
			r.state.Hardware(wholeGPUs(1), 0)
			at("the driver is open again", strings.ReplaceAll(allocatable+expected, " 2", " 1"))
		})
	})
}

// One get a minute, and one line in the log for what stays wrong.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(validated())
		r.set(aNode("gpu=7"), nil)
		r.state.Hardware(cut("1g.10gb", 7, true), 0)
		r.run(t, func() {
			time.Sleep(10*time.Minute + time.Second)
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.calls != 11 {
				t.Errorf("%d requests in ten minutes, want 11", r.calls)
			}
			if n := strings.Count(r.log.String(), "level=WARN"); n != 1 || !strings.Contains(r.log.String(), "nvidia.com/mig.strategy") {
				t.Errorf("%d warnings, want 1:\n%s", n, r.log.String())
			}
		})
	})
}

// An empty folder is one that the validator has not filled yet only on a node that it belongs on: the
// mount makes the folder on every other.
func TestEmptyFolder(t *testing.T) {
	for label, want := range map[string]int{"gpu.deploy.operator-validator=true": 4, "gpu.deploy.operator-validator=paused": 0, "x=y": 0} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(validated())
			r.set(aNode("gpu=2", label), nil)
			r.run(t, func() {
				if got := strings.Count(r.page(t), "operand_ready"); got != want {
					t.Errorf("%s: %d operands, want %d:\n%s", label, got, want, r.page(t))
				}
			})
		})
	}
}

// Without an API server the validator's files remain; they change while the exporter runs.
func TestFilesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		pass := func(file string) {
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		pass("driver-ready")
		reg := prometheus.NewPedanticRegistry()
		r := &rig{registry: reg, state: operatorstate.New(operatorstate.Options{Validations: os.DirFS(dir), Registerer: reg, Log: slog.New(slog.DiscardHandler)})}
		r.run(t, func() {
			if got := r.page(t); !strings.Contains(got, "operand_ready{operand=\"toolkit\"} 0\n") {
				t.Errorf("got\n%s", got)
			}
			pass("toolkit-ready")
			time.Sleep(16 * time.Second)
			synctest.Wait()
			if got := r.page(t); !strings.Contains(got, "operand_ready{operand=\"toolkit\"} 1\n") || strings.Contains(got, "resource") {
				t.Errorf("got\n%s", got)
			}
		})
	})
}
