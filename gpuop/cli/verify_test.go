package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
)

const gathered = "../../docs/examples/must-gather"

// serve starts an API server with the objects in testdata/healthy of package judge. For each request, change is called
// with a copy of each object and can edit it, so the cluster can change over time.
func serve(t *testing.T, change func(kind string, object map[string]any)) *apiserver.Server {
	t.Helper()
	s := &apiserver.Server{}
	for file, path := range map[string]string{
		"nodes": "/api/v1/nodes", "pods": "/api/v1/pods", "daemonsets": "/apis/apps/v1/daemonsets", "clusterpolicies": "/apis/nvidia.com/v1/clusterpolicies",
	} {
		data, err := os.ReadFile(filepath.Join("..", "judge", "testdata", "healthy", file+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []map[string]any }
		if err := yaml.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		s.Generate(path, len(list.Items), func(i int) []byte {
			data, err := json.Marshal(list.Items[i])
			if err != nil {
				t.Error(err)
			}
			var object map[string]any
			if err := json.Unmarshal(data, &object); err != nil {
				t.Error(err)
			}
			change(file, object)
			if data, err = json.Marshal(object); err != nil {
				t.Error(err)
			}
			return data
		})
	}
	return s.Start(t)
}

func as(list string, of map[string]any) string {
	metadata, _ := of["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return list + "/" + name
}

func status(of map[string]any) map[string]any { return of["status"].(map[string]any) }

// verify exits with 0 if a live cluster is healthy.
func TestVerifyOfALiveCluster(t *testing.T) {
	s := serve(t, func(string, map[string]any) {})
	code, out, errOut := call("", "verify", "--kubeconfig", s.Kubeconfig(t))
	if code != exitClean || !strings.Contains(out, " passed") || errOut != "" {
		t.Errorf("exit %d, want 0 and passed checks\n%s%s", code, out, errOut)
	}
	// if RBAC forbids a kind, the report says so and contains the other checks
	s = serve(t, func(string, map[string]any) {})
	s.Forbidden = map[string]bool{"/apis/apps/v1/daemonsets": true}
	code, out, _ = call("", "verify", "--kubeconfig", s.Kubeconfig(t), "-v")
	if code != exitFindings || !strings.Contains(out, `cannot list resource "daemonsets"`) || !strings.Contains(out, "the node offers 8, as predicted") {
		t.Errorf("exit %d, want 1, the forbidden kind and the other checks\n%s", code, out)
	}
}

// --wait polls until the driver is ready, and prints a line for each change. Only the final report is written to
// standard output.
func TestVerifyWaits(t *testing.T) {
	var mu sync.Mutex
	looks := 0
	s := serve(t, func(kind string, object map[string]any) {
		mu.Lock()
		defer mu.Unlock()
		if as(kind, object) == "clusterpolicies/cluster-policy" {
			looks++
		}
		if as(kind, object) == "daemonsets/nvidia-driver-daemonset" && looks < 2 {
			status(object)["numberReady"], status(object)["numberUnavailable"] = 1, 1
		}
	})
	code, out, errOut := call("", "verify", "--wait", "--kubeconfig", s.Kubeconfig(t), "-o", "json")
	if code != exitClean || !json.Valid([]byte(out)) {
		t.Errorf("exit %d, want 0 and JSON\n%s%s", code, out, errOut)
	}
	lines := strings.Split(strings.TrimSpace(errOut), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "warning DaemonSet/gpu-operator/nvidia-driver-daemonset: 1 of 2 pods are ready") || !strings.HasSuffix(lines[1], "ok      DaemonSet/gpu-operator/nvidia-driver-daemonset") {
		t.Errorf("log lines = %q, want one when the DaemonSet waits and one when it is ready", lines)
	}
	// the timeout ends before the first read
	code, out, errOut = call("", "verify", "--wait", "--wait-timeout", "1ns", "--kubeconfig", s.Kubeconfig(t))
	if code != exitNoAnswer || out != "" || !strings.Contains(errOut, "no answer within 1ns") {
		t.Errorf("exit %d, want 3 and no answer within 1ns\n%s%s", code, out, errOut)
	}
	// the timeout ends the wait
	s = serve(t, func(kind string, object map[string]any) {
		if as(kind, object) == "daemonsets/nvidia-driver-daemonset" {
			status(object)["numberReady"], status(object)["numberUnavailable"] = 1, 1
		}
	})
	code, out, errOut = call("", "verify", "--wait", "--wait-timeout", "3s", "--fail-on", "error", "--kubeconfig", s.Kubeconfig(t))
	if code != exitFindings || !strings.Contains(out, "timed out after 3s; 1 finding not resolved") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("exit %d, want 1 and a timeout after 3s\n%s%s", code, out, errOut)
	}
}
