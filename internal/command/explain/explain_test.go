package explain_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/commandtest"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/explain"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// explainCommand explains over the simulated node "demo" and the given kubelet.
func explainCommand(w *commandtest.World, socket string, args ...string) explain.Command {
	return explain.Command{
		Process: w.Process(append(args, "--source=sim", "--sim-node=demo")...),
		Open:    commandtest.Simulate,
		Pods: func(context.Context, *config.Config) (*podmapper.Mapper, error) {
			return podmapper.New(podmapper.Options{Socket: socket, Metrics: podmapper.NewMetrics(prometheus.NewRegistry())}), nil
		},
	}
}

func TestExplain(t *testing.T) {
	k := kubelet.Start(t, kubelet.Lists(
		kubelet.Pod("ml/a", kubelet.Container("main", "nvidia.com/gpu", "nvidia0")),
		kubelet.Pod("ml/b", kubelet.Container("main", "nvidia.com/gpu", "nvidia1/vgpu0")),
		kubelet.Pod("ml/c", kubelet.Container("main", "nvidia.com/gpu", "nvidia1/vgpu1", "nvidia77")),
	))
	for _, tt := range []struct {
		id    string
		code  int
		wants []string
	}{
		{"nvidia0", command.OK, []string{"minor number", "The source has it: GPU 0", "container main of pod ml/a, as resource nvidia.com/gpu", "So the series of GPU 0", "carry the labels of container main of pod ml/a"}},
		{"nvidia1/vgpu1", command.OK, []string{"replica 1", "container main of pod ml/c", "shared by 2 owners (time-slicing)", "no pod labels"}},
		{"nvidia6/gi2", command.OK, []string{"GPU instance 2 (3g.40gb) of GPU 6", "for no container, among 4 devices", "has no owner"}},
		{"nvidia77", command.Faulty, []string{"no such entity among 8 GPUs and 11 GPU instances", "container main of pod ml/c", "dcgm_exporter_unmatched_devices"}},
		{"what", command.Faulty, []string{`"what" is no id`, "expected GPU-UUID", "for no container"}},
		{"gpu.nvidia.com/node/gpu-0", command.Faulty, []string{"device gpu-0 of pool node", "--kubernetes-enable-dra is off"}},
	} {
		t.Run(tt.id, func(t *testing.T) {
			w := &commandtest.World{}
			code := explainCommand(w, k.Socket(), tt.id).Run(t.Context())
			if code != tt.code {
				t.Errorf("code %d, expected %d; log: %s", code, tt.code, &w.Err)
			}
			for _, want := range tt.wants {
				if !strings.Contains(w.Out.String(), want) {
					t.Errorf("output lacks %q:\n%s", want, &w.Out)
				}
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		name     string
		args     []string
		code     int
		out, log string
	}{
		{"help", []string{"--help"}, command.OK, explain.Usage, ""},
		{"no id", nil, command.Unable, "", "dcgm-exporter explain-device: no id given: expected what the kubelet calls a device, such as GPU-UUID or nvidia0/gi3\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &commandtest.World{}
			if code := explainCommand(w, "", tt.args...).Run(t.Context()); code != tt.code {
				t.Errorf("code %d", code)
			}
			if d := cmp.Diff([2]string{tt.out, tt.log}, [2]string{w.Out.String(), w.Err.String()}); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSourceThatCannotBeOpened(t *testing.T) {
	w := &commandtest.World{}
	c := explainCommand(w, "", "nvidia0")
	c.Open = commandtest.Refuse(gpu.ErrUnavailable)
	if code := c.Run(t.Context()); code != command.Faulty || !strings.Contains(w.Err.String(), "unavailable") {
		t.Errorf("code %d, log %q", code, &w.Err)
	}
}

func TestKubeletThatIsNotThere(t *testing.T) {
	w := &commandtest.World{}
	code := explainCommand(w, t.TempDir()+"/none.sock", "nvidia0").Run(t.Context())
	if code != command.OK || !strings.Contains(w.Out.String(), "The kubelet cannot be queried") {
		t.Errorf("code %d, output:\n%s", code, &w.Out)
	}
}
