//go:build e2e

package e2e

import (
	"context"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
)

// The runtime class that the DaemonSet names: the node has no other runtime.
const runtimeClass = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: runc
---
`

// kustomize returns deployment/kubernetes with components, as kubectl builds it.
func (n *node) kustomize(t *testing.T, components ...string) string {
	t.Helper()
	dir := t.TempDir()
	deployment, err := filepath.Abs("../../deployment/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Rel(dir, deployment) // kustomize refuses absolute paths
	if err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + base + "]\ncomponents:\n"
	for _, c := range components {
		text += "  - " + filepath.Join(base, "components", c) + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return n.must(t, "", "kustomize", dir)
}

// exporterPod returns the manifests of deployment/kubernetes with what gives the pods' labels, over
// the simulated node.
func (n *node) exporterPod(t *testing.T) string {
	t.Helper()
	var rest []string
	for doc := range strings.SplitSeq(n.kustomize(t, "pod-labels"), "\n---\n") {
		if strings.Contains(doc, "\nkind: Namespace\n") {
			n.must(t, doc, "apply", "-f", "-") // it stays, as theNode says
			continue
		}
		rest = append(rest, doc)
	}
	return onThisNode(t, strings.Join(rest, "\n---\n"), func(set *apps.DaemonSet) {
		exporter := &set.Spec.Template.Spec.Containers[0]
		exporter.Args = append(exporter.Args, "--source=sim", "--sim-node="+simNode, "--collect-interval=500")
		exporter.ReadinessProbe.PeriodSeconds = 1 // the test waits for it
	})
}

// label gives the node a label until the test ends.
func (n *node) label(t *testing.T, key, value string) {
	t.Helper()
	n.must(t, "", "label", "node", nodeName, key+"="+value, "--overwrite")
	t.Cleanup(func() { n.must(t, "", "label", "node", nodeName, key+"-") })
}

// The exporter as a pod of the cluster, as deployment/ and docs/ put it there, on a node whose
// replicas run under MPS, while the API server restarts.
func TestTheExporterIsAPod(t *testing.T) {
	n := theNode(t)
	n.image(t)
	offer(t, n)
	n.label(t, "nvidia.com/gpu.present", "true")
	n.label(t, "nvidia.com/gpu.sharing-strategy", "mps")
	n.run(t, runtimeClass+manual(t))
	n.applied(t, n.exporterPod(t))
	if out, err := n.kubectl("", "-n", "gpu-monitoring", "rollout", "status", "daemonset/dcgm-exporter", "--timeout="+patience.String()); err != nil {
		about, _ := n.kubectl("", "-n", "gpu-monitoring", "describe", "daemonset,pod")
		t.Fatalf("the exporter is not ready: %s\n%s", out, about)
	}
	e := &exporter{t: t, url: "http://" + nodeIP + ":9400/metrics"}

	manifest, names, want := manyPods()
	n.run(t, manifest, names...)
	uid := n.must(t, "", "-n", "ml", "get", "pod", "train", "-o", "jsonpath={.metadata.uid}")
	labeled := func(team string) func(page) bool {
		return func(p page) bool {
			all := p.series(memory)
			at := slices.IndexFunc(all, func(l map[string]string) bool { return l["gpu"] == "0" })
			return at >= 0 && all[at]["team"] == team && all[at]["pod_uid"] == uid
		}
	}
	shared := []string{"2 web/a/main nvidia.com/gpu.shared mps 4", "2 web/b/main nvidia.com/gpu.shared mps 4"}
	e.showing(want)
	e.until("the replicas under MPS", func(p page) bool {
		return slices.Equal(shared, slices.DeleteFunc(sharers(p), func(s string) bool { return !strings.HasPrefix(s, "2 ") }))
	})
	for _, l := range e.until("the pod's labels", labeled("train-team")).series("dcgm_pod_gpu_info") {
		if l["pod_uid"] == "" {
			t.Errorf("dcgm_pod_gpu_info without the pod's UID: %v", l)
		}
	}

	// Without the API server everything that was known stays; once it is back, what is new comes.
	answers := func(value float64) func(page) bool {
		return func(p page) bool {
			of := p.series("dcgm_exporter_kubernetes_api_success")
			at := slices.IndexFunc(of, func(l map[string]string) bool { return l["resource"] == "pods" })
			return at >= 0 && p["dcgm_exporter_kubernetes_api_success"].GetMetric()[at].GetGauge().GetValue() == value
		}
	}
	e.until("an API server that answers", answers(1))
	start := n.stop(t, "apiserver")
	p := e.until("no API server", answers(0), func(p page) {
		if !labeled("train-team")(p) {
			t.Errorf("without the API server: %v", p.series(memory)[0])
		}
	})
	if len(sharers(p)) != 6 {
		t.Errorf("owners without the API server: %q", sharers(p))
	}
	start()
	n.await(t)
	n.must(t, "", "-n", "ml", "label", "pod", "train", "team=vision", "--overwrite")
	e.until("the label's new value", labeled("vision"))
}

// end sends a process of each of a pod's containers a signal to end. It finds them as the exporter
// finds the pod of a process: by their control groups.
func (n *node) end(t *testing.T, namespace, pod string, containers ...string) {
	t.Helper()
	uid := n.must(t, "", "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range containers {
		id := n.must(t, "", "-n", namespace, "get", "pod", pod, "-o", `jsonpath={.status.containerStatuses[?(@.name=="`+name+`")].containerID}`)
		container := strings.TrimPrefix(id, "containerd://")
		at := slices.IndexFunc(files, func(path string) bool {
			text, err := os.ReadFile(path)
			return err == nil && slices.Contains(process.Pods(string(text)), uid) && strings.Contains(string(text), container) // or it has ended
		})
		if at < 0 {
			t.Fatalf("no process has the control group of container %s (%s) of pod %s/%s (%s)", name, container, namespace, pod, uid)
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(files[at])))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
}

// staged is a pod of which an init container has had a GPU that the main one goes on with, and a
// sidecar has an instance.
const staged = `---
apiVersion: v1
kind: Pod
metadata: {namespace: ml, name: staged}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 5
  initContainers:
    - {name: prepare, image: "` + exporterImage + `", imagePullPolicy: Never, args: [--version], resources: {limits: {nvidia.com/gpu: 1}}}
    - {name: sidecar, image: "e2e.local/hold:1", restartPolicy: Always, resources: {limits: {nvidia.com/mig-3g.40gb: 1}}}
  containers:
    - {name: main, image: "e2e.local/hold:1", resources: {limits: {nvidia.com/gpu: 1}}}
`

// once returns the manifest of a pod that is not started again when its process ends.
func once(name, resource string) string {
	return strings.Replace(pod(name, resource, 1), "spec:\n", "spec:\n  restartPolicy: Never\n", 1)
}

// deviceOf returns the device that shows an owner.
func deviceOf(p page, owner string) string {
	for device, o := range p.owners() {
		if o == owner {
			return device
		}
	}
	return ""
}

func TestPodsThatEndAndBegin(t *testing.T) {
	n := theNode(t)
	n.image(t)
	offer(t, n)
	e := n.export(t, "")
	n.run(t, staged+once("ml/brief", "nvidia.com/gpu"), "ml/staged", "ml/brief")

	// The GPU of an init container is the main container's, a sidecar's is its own.
	holders := func(p page) []string { return slices.Sorted(maps.Values(p.owners())) }
	held := func(want ...string) func(page) bool {
		return func(p page) bool { return slices.Equal(holders(p), want) }
	}
	p := e.until("init container, sidecar and main", held("ml/brief/main", "ml/staged/main", "ml/staged/sidecar"))
	given := deviceOf(p, "ml/brief/main")

	// A pod that is done, and still there for the API server, holds nothing; its GPU is the next
	// one's.
	n.end(t, "ml", "brief", "main", "beside")
	n.must(t, "", "-n", "ml", "wait", "pod/brief", "--for=jsonpath={.status.phase}=Succeeded", "--timeout="+patience.String())
	e.until("the pod that is done gone", held("ml/staged/main", "ml/staged/sidecar"))
	n.run(t, pod("ml/heir", "nvidia.com/gpu", 1), "ml/heir")
	p = e.until("the next pod alone", held("ml/heir/main", "ml/staged/main", "ml/staged/sidecar"), func(p page) {
		if slices.Contains(holders(p), "ml/brief/main") {
			t.Error("a pod that is done holds a GPU")
		}
	})
	if got := deviceOf(p, "ml/heir/main"); got != given {
		t.Errorf("the next pod is shown on GPU %q, and the one that is done had %q", got, given)
	}
}

// onThisNode returns manifests as this node can run them: what belongs to software that it has not
// is left out, and pods have the host's network, since it has none for pods, and the API server's
// address, since it serves none of the cluster's. Everything else is as it was. change may add to a
// DaemonSet.
func onThisNode(t *testing.T, manifests string, change func(*apps.DaemonSet)) string {
	t.Helper()
	var out []string
	for doc := range strings.SplitSeq(manifests, "\n---") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		switch kind.Kind {
		case "", "ServiceMonitor", "PrometheusRule", "SecurityContextConstraints":
			continue
		case "DaemonSet":
			var set apps.DaemonSet
			if err := yaml.UnmarshalStrict([]byte(doc), &set); err != nil {
				t.Fatal(err)
			}
			pod := &set.Spec.Template.Spec
			pod.HostNetwork = true
			pod.Containers[0].Env = append(pod.Containers[0].Env,
				core.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: nodeIP}, core.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: "6443"})
			change(&set)
			doc = string(asJSON(t, &set))
		}
		out = append(out, doc)
	}
	return strings.Join(out, "\n---\n")
}

// applied applies manifests until the test ends, and waits until what they run is gone, since the
// next ones listen on the same port.
func (n *node) applied(t *testing.T, manifests string) {
	t.Helper()
	n.must(t, manifests, "apply", "-f", "-")
	t.Cleanup(func() {
		if t.Failed() {
			for _, namespace := range []string{"gpu-monitoring", "gpu-operator", "default"} {
				about, _ := n.kubectl("", "-n", namespace, "describe", "daemonset,pod")
				logs, _ := n.kubectl("", "-n", namespace, "logs", "-l", "app.kubernetes.io/name=dcgm-exporter", "--tail=40")
				t.Logf("%s:\n%s\n%s", namespace, about, logs)
			}
		}
		n.must(t, manifests, "delete", "--ignore-not-found", "--wait", "--grace-period=1", "-f", "-")
		eventually(t, func() bool {
			resp, err := http.Get("http://" + nodeIP + ":9400/health")
			if err == nil {
				resp.Body.Close()
			}
			return err != nil
		}, func() string { return "port 9400 is still served" })
	})
}

// eventually waits until done, and fails with what else was seen.
func eventually(t *testing.T, done func() bool, seen func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for !done() {
		if ctx.Err() != nil {
			t.Fatal(seen())
		}
		pause(ctx)
	}
}
