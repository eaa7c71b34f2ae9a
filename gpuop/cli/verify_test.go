package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
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
		var list struct{ Items []json.RawMessage }
		if err := yaml.Unmarshal([]byte(folder.Read(t, recorded, file+".yaml")), &list); err != nil {
			t.Fatal(err)
		}
		s.Generate(path, len(list.Items), func(i int) []byte {
			var object map[string]any
			err := json.Unmarshal(list.Items[i], &object)
			change(file, object)
			data, failed := json.Marshal(object)
			if err := errors.Join(err, failed); err != nil {
				t.Error(err)
			}
			return data
		})
	}
	return s.Start(t)
}

// unready changes the driver's DaemonSet: only one of its two pods is ready.
func unready(kind string, object map[string]any) {
	if kind == "daemonsets" && object["metadata"].(map[string]any)["name"] == "nvidia-driver-daemonset" {
		status := object["status"].(map[string]any)
		status["numberReady"], status["numberUnavailable"] = 1, 1
	}
}

// verify exits with 0 if a live cluster is healthy.
func TestVerifyOfALiveCluster(t *testing.T) {
	s := serve(t, func(string, map[string]any) {})
	code, out, errOut := call("", "verify", "--kubeconfig", s.Kubeconfig(t))
	if code != exitClean || !strings.Contains(out, " passed") || errOut != "" {
		t.Errorf("exit %d, want 0 and passed checks\n%s%s", code, out, errOut)
	}
	// if RBAC forbids a kind, the report says so and contains the other checks
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
		if kind == "clusterpolicies" {
			looks++
		}
		if looks < 2 {
			unready(kind, object)
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
	s = serve(t, unready)
	code, out, errOut = call("", "verify", "--wait", "--wait-timeout", "3s", "--fail-on", "error", "--kubeconfig", s.Kubeconfig(t))
	if code != exitFindings || !strings.Contains(out, "timed out after 3s; 1 finding not resolved") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("exit %d, want 1 and a timeout after 3s\n%s%s", code, out, errOut)
	}
}
