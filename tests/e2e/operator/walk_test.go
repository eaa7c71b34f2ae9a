//go:build e2e

package operator

import (
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// TestFirstInstallation follows a new user from an empty cluster to a time-sliced node. It runs verify after each step,
// and values gen, lint, preflight and node predict in between.
func TestFirstInstallation(t *testing.T) {
	s := start(t)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		folder.Write(t, path, content)
		return path
	}
	gpuop := func(code int, args ...string) run {
		t.Helper()
		r := s.gpuop(t, administrator, args...)
		if r.code != code {
			t.Fatalf("gpuop %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.code, code, r.out, r.log)
		}
		return r
	}
	rows := func(code int, args ...string) []string {
		t.Helper()
		return wrong(gpuop(code, append(args, "-o", "json")...).findings(t))
	}

	t.Run("empty", func(t *testing.T) {
		s.enter(t, load(t, "empty"))
		compare(t, []string{"error - ClusterPolicy", "error - nodes"}, rows(1, "verify"))
		values := gpuop(0, "values", "gen", "generic", "--version", version)
		gpuop(0, "lint", file("values.yaml", values.out))
		compare(t, []string{"warning - nodes"},
			rows(1, "preflight", "--version", version, "-f", filepath.Join(dir, "values.yaml")))
	})

	// instead of installing the chart and running the operator, create the objects of the state "healthy"
	st := load(t, "healthy")
	s.enter(t, st)
	compare(t, nil, rows(0, "verify"))

	// create the ConfigMap, and refer to it in the ClusterPolicy
	const manifest = `apiVersion: v1
kind: ConfigMap
metadata: {name: device-plugin-config, namespace: gpu-operator}
data:
  any: |-
    version: v1
    sharing:
      timeSlicing:
        resources:
          - name: nvidia.com/gpu
            replicas: 4
`
	sharing := file("sharing.yaml", manifest)
	gpuop(0, "lint", sharing)
	// Kubernetes records times in whole seconds. A change in the second in which the plugin started could seem older
	// than the plugin's start.
	started := time.Now().Unix()
	eventually(t, "the next second to begin", func() error {
		if time.Now().Unix() == started {
			return errors.New("still in the same second")
		}
		return nil
	})
	for _, o := range parse(t, "the ConfigMap", []byte(manifest)) {
		s.create(t, st, o, "")
	}
	s.do(t, http.MethodPatch, "/apis/nvidia.com/v1/clusterpolicies/cluster-policy?fieldManager=helm",
		object{"spec": object{"devicePlugin": object{
			"config": object{"name": "device-plugin-config", "default": "any"},
		}}})
	// the plugin has not applied the change yet
	compare(t, []string{"error - ConfigMap/device-plugin-config", "error gpu-1 nvidia.com/gpu",
		"error gpu-2 nvidia.com/gpu"}, rows(1, "verify"))

	// the plugin and GFD restart, and the nodes get the labels and resources that gpuop predicts
	for _, name := range []string{"gpu-1", "gpu-2"} {
		path := "/api/v1/nodes/" + name
		node := object(s.do(t, http.MethodGet, path, nil))
		data, err := json.Marshal(node)
		if err != nil {
			t.Fatal(err)
		}
		var predicted struct {
			Result struct {
				Labels    map[string]string
				Resources map[string]struct{ Before, After int }
			}
		}
		out := gpuop(0, "node", "predict", "-f", sharing, "--node", file(name+".json", string(data)), "--config", "any",
			"-o", "json")
		if err := json.Unmarshal([]byte(out.out), &predicted); err != nil {
			t.Fatal(err)
		}
		if n := predicted.Result.Resources["nvidia.com/gpu"]; n.Before != 8 || n.After != 32 {
			t.Errorf("%s: predicted nvidia.com/gpu = %+v, want 8 before and 32 after", name, n)
		}
		s.do(t, http.MethodPatch, path+"?fieldManager=nfd",
			object{"metadata": object{"labels": predicted.Result.Labels}})
		offered := map[string]string{}
		for resource, n := range predicted.Result.Resources {
			offered[resource] = strconv.Itoa(n.After)
		}
		s.do(t, http.MethodPatch, path+"/status", object{"status": object{"capacity": offered, "allocatable": offered}})
	}
	s.restart(t, st, "nvidia-device-plugin-daemonset", "gpu-feature-discovery")
	compare(t, nil, rows(0, "verify"))
}

// restart deletes the pods of DaemonSets, and waits until their replacements run.
func (s *server) restart(t *testing.T, st *state, sets ...string) {
	t.Helper()
	pods, err := s.list(allPods)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		if slices.Contains(sets, owner(pod)) {
			s.do(t, http.MethodDelete, allPods+"/"+pod.text("metadata", "name"), object{"gracePeriodSeconds": 0})
		}
	}
	eventually(t, "new pods to run", func() error { return s.kubelets(t, st) })
}
