//go:build e2e

package operator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// namespace is the operator's namespace.
const namespace = "gpu-operator"

// version is the chart's release. crds is the folder of that release's CustomResourceDefinitions.
const (
	version = "v26.7.0"
	crds    = "data/upstream/gpu-operator-v26.7.0/crds"
)

// A place says how the API server serves a kind.
type place struct {
	prefix, resource string
	namespaced       bool
	status           bool // create sets the status of such objects
}

// places lists the kinds that states may contain.
var places = map[string]place{
	"DaemonSet":          {"/apis/apps/v1", "daemonsets", true, false},
	"Pod":                {"/api/v1", "pods", true, true},
	"ConfigMap":          {"/api/v1", "configmaps", true, false},
	"Secret":             {"/api/v1", "secrets", true, false},
	"ResourceQuota":      {"/api/v1", "resourcequotas", true, true},
	"Node":               {"/api/v1", "nodes", false, true},
	"RuntimeClass":       {"/apis/node.k8s.io/v1", "runtimeclasses", false, false},
	"ClusterPolicy":      {"/apis/nvidia.com/v1", "clusterpolicies", false, true},
	"NVIDIADriver":       {"/apis/nvidia.com/v1alpha1", "nvidiadrivers", false, true},
	"ClusterRole":        {"/apis/rbac.authorization.k8s.io/v1", "clusterroles", false, false},
	"ClusterRoleBinding": {"/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", false, false},
}

func (p place) path(namespace, name string) string {
	path := p.prefix
	if p.namespaced {
		path += "/namespaces/" + namespace
	}
	path += "/" + p.resource
	if name != "" {
		path += "/" + name
	}
	return path
}

// install creates the namespaces and NVIDIA's CRDs, which every state needs. It waits until the CRDs are served.
func (s *server) install(t *testing.T) {
	t.Helper()
	for _, name := range []string{namespace, "ml"} {
		s.do(t, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": name}})
	}
	for name, version := range map[string]string{
		"clusterpolicies": "v1", "nvidiadrivers": "v1alpha1", "gpuclusters": "v1alpha1",
	} {
		for _, crd := range parse(t, name, material.Read(t, crds+"/nvidia.com_"+name+".yaml")) {
			s.do(t, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
		}
		eventually(t, "CRDs to be served", func() error {
			_, err := s.try(http.MethodGet, "/apis/nvidia.com/"+version+"/"+name, nil)
			return err
		})
	}
}

// enter creates the objects of a state and waits until the pods run. If the state has a base, it installs the chart
// first. When the test ends, it deletes all of this.
func (s *server) enter(t *testing.T, st *state) {
	t.Helper()
	t.Cleanup(func() { s.clear(t) })
	if st.Base {
		s.helm(t, "install", release, s.chart(t), "--wait=false")
	}
	owner := ""
	for _, kinds := range [][]string{
		{"RuntimeClass", "ClusterRole", "ClusterRoleBinding", "Node", "ClusterPolicy", "NVIDIADriver"},
		{"ConfigMap", "Secret", "ResourceQuota", "DaemonSet", "Pod"},
	} {
		for _, kind := range kinds {
			for _, o := range st.objects {
				if o.text("kind") != kind {
					continue
				}
				made := s.create(t, st, o, owner)
				if kind == "ClusterPolicy" && owner == "" {
					owner = made.text("metadata", "uid")
				}
			}
		}
	}
	eventually(t, "pods of the DaemonSets to run", func() error { return s.kubelets(t, st) })
}

// create creates an object and sets its status. If the chart has installed the object, create edits it instead. The
// placeholder OWNER in the object is replaced by owner, the UID of the ClusterPolicy. If owner is empty,
// ownerReferences is removed.
func (s *server) create(t *testing.T, st *state, o object, owner string) object {
	t.Helper()
	p, known := places[o.text("kind")]
	if !known {
		t.Fatalf("states/%s.yaml: unsupported kind %s", st.name, o.text("kind"))
	}
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var sent object
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(data), "OWNER", owner)), &sent); err != nil {
		t.Fatal(err)
	}
	if owner == "" {
		delete(sent["metadata"].(map[string]any), "ownerReferences")
	}
	path := p.path(o.text("metadata", "namespace"), o.text("metadata", "name"))
	var made object
	var refused *refusal
	switch installed, err := s.try(http.MethodGet, path, nil); {
	case err == nil: // the chart has installed the object: date it an hour back, so that the edit is later
		var before object
		if err := json.Unmarshal(installed, &before); err != nil {
			t.Fatal(err)
		}
		writtenBefore(before, time.Hour)
		s.do(t, http.MethodPut, path+"?fieldManager=kubectl-annotate", before)
		made = s.do(t, http.MethodPatch, path+"?fieldManager=kubectl-edit", sent)
	case errors.As(err, &refused) && refused.code == http.StatusNotFound:
		made = s.do(t, http.MethodPost, p.path(o.text("metadata", "namespace"), "")+"?fieldManager=gpu-operator", sent)
	default:
		t.Fatalf("%s: %v", o.key(), err)
	}
	if p.status && sent["status"] != nil {
		made["status"] = sent["status"]
		made = s.do(t, http.MethodPut, path+"/status", made)
	}
	if o.text("kind") == "Node" && st.LabelsSince > 0 {
		writtenBefore(made, st.LabelsSince)
		made = s.do(t, http.MethodPut, path+"?fieldManager=kubectl-annotate", made)
	}
	return made
}

// release is the name of the chart's Helm release.
const release = "gpu-operator"

// chart returns a chart that renders the same objects as NVIDIA's chart with default values, without hooks. The tests
// install it with Helm to get a genuine release.
func (s *server) chart(t *testing.T) string {
	t.Helper()
	from := filepath.Join(charts.Data(t), version)
	rendered := documents(t, filepath.Join(from, "rendered-defaults.yaml"))
	rendered = slices.DeleteFunc(rendered,
		func(o object) bool { return o.at("metadata", "annotations", "helm.sh/hook") != nil })
	text := func(v any) string {
		data, err := yaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	about := documents(t, filepath.Join(from, "Chart.yaml"))[0]
	delete(about, "dependencies") // the rendered objects include those of the subchart
	var all strings.Builder
	for _, o := range rendered {
		all.WriteString("---\n" + text(o))
	}
	if strings.Contains(all.String(), "{{") {
		t.Fatal("rendered chart contains template brackets")
	}
	return filepath.Join(folder.Of(t, map[string]string{
		"gpu-operator/Chart.yaml": text(about), "gpu-operator/values.yaml": folder.Read(t, from, "values.yaml"),
		"gpu-operator/templates/all.yaml": all.String(),
	}), "gpu-operator")
}

// helm runs Helm in the operator's namespace as administrator.
func (s *server) helm(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv("E2E_PROGRAMS"), "helm"),
		append(args, "--namespace", namespace, "--kubeconfig", s.kubeconfigOf(administrator))...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+s.folder, "HELM_CONFIG_HOME="+s.folder,
		"HELM_DATA_HOME="+s.folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// writtenBefore changes managedFields so that the object seems to have been written some time ago. The API server
// accepts such times only in an update that also changes something else, so writtenBefore sets an annotation too.
func writtenBefore(o object, ago time.Duration) {
	metadata := o["metadata"].(map[string]any)
	metadata["annotations"] = merged(metadata["annotations"], map[string]any{"e2e/written-before": ago.String()})
	list, _ := o.at("metadata", "managedFields").([]any)
	for _, one := range list {
		one.(map[string]any)["time"] = time.Now().Add(-ago).UTC().Format(time.RFC3339)
	}
}

// kubelets sets the status of new pods as their kubelets would, and deletes terminating pods. The error says which pod
// or DaemonSet is not yet in the expected state.
func (s *server) kubelets(t *testing.T, st *state) error {
	pods, err := s.list(allPods)
	if err != nil {
		return err
	}
	ready, listed := map[string]int{}, map[string]int{}
	for _, pod := range pods {
		listed[owner(pod)]++
		if pod.text("metadata", "deletionTimestamp") != "" {
			now := object{"gracePeriodSeconds": 0}
			_, err := s.try(http.MethodDelete, allPods+"/"+pod.text("metadata", "name"), now)
			return errors.Join(err, fmt.Errorf("%s is terminating", pod.key()))
		}
		node := pod.text("spec", "nodeName")
		if node == "" {
			return fmt.Errorf("%s is not scheduled", pod.key())
		}
		status, isReady := st.statusOf(pod)
		if isReady {
			ready[owner(pod)]++
		}
		if pod.text("status", "startTime") != "" {
			continue
		}
		pod["status"] = status
		if _, err := s.try(http.MethodPut, allPods+"/"+pod.text("metadata", "name")+"/status", pod); err != nil {
			return err
		}
	}
	sets, err := s.list("/apis/apps/v1/namespaces/" + namespace + "/daemonsets")
	if err != nil {
		return err
	}
	for _, set := range sets {
		observed, _ := set.at("status", "observedGeneration").(float64)
		desired, _ := set.at("status", "desiredNumberScheduled").(float64)
		current, _ := set.at("status", "currentNumberScheduled").(float64)
		available, _ := set.at("status", "numberReady").(float64)
		// the numbers differ if a pod was created after the pods were listed
		if observed == 0 || current != desired || listed[set.text("metadata", "name")] != int(desired) ||
			int(available) != ready[set.text("metadata", "name")] {
			return fmt.Errorf("%s: %v", set.key(), set["status"])
		}
	}
	return nil
}

// allPods is the path of the pods in the operator's namespace.
const allPods = "/api/v1/namespaces/" + namespace + "/pods"

// list returns the objects at a path.
func (s *server) list(path string) ([]object, error) {
	data, err := s.try(http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	var all struct{ Items []object }
	err = json.Unmarshal(data, &all)
	return all.Items, err
}

// owner returns the name of the DaemonSet of a pod, or "".
func owner(pod object) string {
	list, _ := pod.at("metadata", "ownerReferences").([]any)
	for _, o := range list {
		if o := object(o.(map[string]any)); o.text("kind") == "DaemonSet" {
			return o.text("name")
		}
	}
	return ""
}

// statusOf returns the status that a kubelet would set for a pod, and whether the pod is ready.
func (st *state) statusOf(pod object) (status object, ready bool) {
	since := time.Now().Add(-st.PodsSince).UTC().Format(time.RFC3339)
	var broken *podState
	for i, p := range st.Pods {
		if p.DaemonSet == owner(pod) && p.Node == pod.text("spec", "nodeName") {
			broken = &st.Pods[i]
		}
	}
	word := map[bool]string{true: "True", false: "False"}
	statuses := func(field string, init bool) []any {
		var all []any
		list, _ := pod.at("spec", field).([]any)
		// init containers before the broken container have exited, and containers after it have not started
		reached := false
		for _, c := range list {
			c := object(c.(map[string]any))
			one := object{"name": c["name"], "image": c["image"], "imageID": c["image"], "restartCount": 0,
				"ready": true}
			switch {
			case broken != nil && broken.Init == init && broken.Container == c["name"]:
				reached = true
				one["ready"], one["restartCount"] = false, broken.Restarts
				one["state"] = object{"waiting": object{"reason": broken.Reason, "message": broken.Message}}
				if broken.Reason == "" { // the container runs, but is not ready
					one["state"] = object{"running": object{"startedAt": since}}
				}
			case reached || broken != nil && broken.Init && !init:
				one["ready"] = false
				one["state"] = object{"waiting": object{"reason": "PodInitializing"}}
			case init:
				one["state"] = object{"terminated": object{"exitCode": 0, "reason": "Completed", "startedAt": since,
					"finishedAt": since}}
			default:
				one["state"] = object{"running": object{"startedAt": since}}
				one["started"] = true
			}
			all = append(all, one)
		}
		return all
	}
	ready = broken == nil
	phase := "Running"
	if broken != nil && broken.Init {
		phase = "Pending"
	}
	status = object{
		"phase": phase, "startTime": since, "podIP": "10.1.0.1", "podIPs": []any{object{"ip": "10.1.0.1"}},
		"conditions": []any{
			object{"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
			object{"type": "Initialized", "status": word[broken == nil || !broken.Init], "lastTransitionTime": since},
			object{"type": "ContainersReady", "status": word[ready], "lastTransitionTime": since},
			object{"type": "Ready", "status": word[ready], "lastTransitionTime": since},
		},
		"initContainerStatuses": statuses("initContainers", true),
		"containerStatuses":     statuses("containers", false),
	}
	return status, ready
}

// clear uninstalls the chart and deletes all objects that a state may contain. It keeps the API server's own objects.
func (s *server) clear(t *testing.T) {
	t.Helper()
	releases, err := s.list("/api/v1/namespaces/" + namespace + "/secrets?labelSelector=owner%3Dhelm")
	if err != nil {
		t.Fatal(err)
	}
	if len(releases) > 0 {
		s.helm(t, "uninstall", release, "--wait=false")
	}
	now := object{"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
	for _, kind := range []string{"ClusterPolicy", "NVIDIADriver", "DaemonSet", "Pod", "ConfigMap", "Secret",
		"ResourceQuota", "Node", "RuntimeClass", "ClusterRoleBinding", "ClusterRole"} {
		p := places[kind]
		namespaces := []string{""}
		if p.namespaced {
			namespaces = []string{namespace, "ml"}
		}
		for _, ns := range namespaces {
			eventually(t, "the last "+kind+" to be deleted", func() error {
				all, err := s.list(p.path(ns, ""))
				if err != nil {
					return err
				}
				left := 0
				for _, o := range all {
					name := o.text("metadata", "name")
					if strings.HasPrefix(kind, "ClusterRole") && !strings.HasPrefix(name, "state-") ||
						name == "kube-root-ca.crt" {
						continue
					}
					left++
					var refused *refusal
					if _, err := s.try(http.MethodDelete, p.path(ns, name), now); err != nil &&
						!(errors.As(err, &refused) && refused.code == http.StatusNotFound) {
						return err
					}
				}
				if left > 0 {
					return fmt.Errorf("%d objects of kind %s left", left, kind)
				}
				return nil
			})
		}
	}
}
