//go:build e2e

package operator

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestMIGChange runs gpuop mig apply --apply, and then gpuop verify --wait --node. The test acts as the MIG manager:
// after gpuop has set the label, the operands stop and start again. gpuop must fail if the manager reports success but
// the node offers no instances.
func TestMIGChange(t *testing.T) {
	s := start(t)
	for _, tt := range []struct {
		name, devices string
		code          int
		says          string
	}{
		{"success", "56", 0, "10 passed"},
		{"success without devices", "0", 1, "expected 56"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := load(t, "healthy")
			s.enter(t, st)
			apply := s.gpuop(t, administrator, "mig", "apply", "gpu-1", "all-1g.10gb", "--apply")
			if apply.code != 0 || !strings.Contains(apply.out+apply.log, "gpuop verify --wait --node gpu-1") {
				t.Fatalf("exit code %d\n%s%s", apply.code, apply.out, apply.log)
			}
			cmd := s.command(administrator, "verify", "--wait", "--node", "gpu-1", "--wait-timeout", "40s")
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()

			path := "/api/v1/nodes/gpu-1"
			labels := func(list map[string]any) {
				s.do(t, http.MethodPatch, path+"?fieldManager=mig-manager", object{"metadata": object{"labels": list}})
			}
			node := object(s.do(t, http.MethodGet, path, nil))
			if got := node.text("metadata", "labels", "nvidia.com/mig.config"); got != "all-1g.10gb" {
				t.Fatalf("mig.config = %q, want all-1g.10gb", got)
			}
			clients := []string{"device-plugin", "gpu-feature-discovery", "dcgm", "dcgm-exporter", "operator-validator"}
			paused, back := map[string]any{"nvidia.com/mig.config.state": "pending"}, map[string]any{}
			for _, c := range clients {
				paused["nvidia.com/gpu.deploy."+c], back["nvidia.com/gpu.deploy."+c] = "paused-for-mig-change", "true"
			}
			labels(paused)
			eventually(t, "the operands to stop", func() error {
				if err := s.kubelets(t, st); err != nil {
					return err
				}
				pods, err := s.list(allPods + "?fieldSelector=spec.nodeName%3Dgpu-1")
				runs := func(pod object) bool { return owner(pod) == "nvidia-device-plugin-daemonset" }
				if err == nil && slices.ContainsFunc(pods, runs) {
					err = errors.New("the device plugin still runs")
				}
				return err
			})
			back["nvidia.com/mig.config.state"] = "success"
			if tt.devices != "0" {
				back["nvidia.com/gpu.product"] = "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"
				back["nvidia.com/gpu.count"] = tt.devices
				back["nvidia.com/gpu.memory"] = "9984"
			}
			offered := object{"nvidia.com/gpu": tt.devices}
			s.do(t, http.MethodPatch, path+"/status",
				object{"status": object{"capacity": offered, "allocatable": offered}})
			labels(back)
			eventually(t, "gpuop to end", func() error {
				running := s.kubelets(t, st)
				select {
				case <-ended:
					return nil
				default:
					return fmt.Errorf("gpuop still waits for the change; pods: %w",
						cmp.Or(running, errors.New("all pods run")))
				}
			})
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(out.String(), tt.says) {
				t.Errorf("exit code = %d, want %d and %q in\n%s", code, tt.code, tt.says, &out)
			}
			t.Log(out.String())
		})
	}
}
