//go:build e2e

package e2e

import (
	"errors"
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

// runtimeClass is the RuntimeClass nvidia, which the DaemonSet uses. Its handler is runc, the only runtime of the node.
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
	base, err := filepath.Rel(dir, deployment) // kustomize rejects absolute paths
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

// exporterPod returns the manifests of deployment/kubernetes, with the component for pod labels. They are changed to
// read the simulated node. exporterPod applies the Namespace itself and leaves it out.
func (n *node) exporterPod(t *testing.T) string {
	t.Helper()
	var rest []string
	for doc := range strings.SplitSeq(n.kustomize(t, "pod-labels"), "\n---\n") {
		if strings.Contains(doc, "\nkind: Namespace\n") {
			n.must(t, doc, "apply", "-f", "-") // the namespace is not deleted after the test: see theNode
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

// label sets a label of the node, and removes it when the test ends.
func (n *node) label(t *testing.T, key, value string) {
	t.Helper()
	n.must(t, "", "label", "node", nodeName, key+"="+value, "--overwrite")
	t.Cleanup(func() { n.must(t, "", "label", "node", nodeName, key+"-") })
}

// TestExporterPod deploys the exporter as a pod, as documented in deployment/ and docs/. It checks owners on a node
// that shares GPUs with MPS, and the labels of pods while the API server is down and after it returns.
func TestExporterPod(t *testing.T) {
	n := offering(t)
	n.image(t)
	n.label(t, "nvidia.com/gpu.present", "true")
	n.label(t, "nvidia.com/gpu.sharing-strategy", "mps")
	n.run(t, runtimeClass+manual(t))
	n.applied(t, n.exporterPod(t))
	if out, err := n.kubectl("", "-n", "gpu-monitoring", "rollout", "status", "daemonset/dcgm-exporter",
		"--timeout="+patience.String()); err != nil {
		about, _ := n.kubectl("", "-n", "gpu-monitoring", "describe", "daemonset,pod")
		t.Fatalf("exporter pod is not ready: %s\n%s", out, about)
	}
	e := &exporter{t: t, url: "http://" + nodeIP + ":9400/metrics"}

	manifest, names, want := manyPods()
	n.run(t, manifest, names...)
	uid := n.must(t, "", "-n", "ml", "get", "pod", "train", "-o", "jsonpath={.metadata.uid}")
	labeled := func(team string) func(page) bool {
		return func(p page) bool { return p.Owned(memory, "team", "pod_uid")["0"] == team+"/"+uid }
	}
	shared := []string{"2 web/a/main nvidia.com/gpu.shared mps 4", "2 web/b/main nvidia.com/gpu.shared mps 4"}
	e.showing(want)
	e.until("the pods that share a GPU with MPS", func(p page) bool {
		return slices.Equal(shared,
			slices.DeleteFunc(sharers(p), func(s string) bool { return !strings.HasPrefix(s, "2 ") }))
	})
	for _, s := range e.until("the pod's labels", labeled("train-team"))["dcgm_pod_gpu_info"] {
		if !s.Labels.Has("pod_uid") {
			t.Errorf("dcgm_pod_gpu_info has no pod_uid: %v", s.Labels)
		}
	}

	// while the API server is down, known labels are kept; changes appear when it is back
	answers := func(value float64) func(page) bool {
		return func(p page) bool {
			v, ok := p.By("dcgm_exporter_kubernetes_api_success", "resource")["pods"]
			return ok && v == value
		}
	}
	e.until("the exporter to reach the API server", answers(1))
	start := n.stop(t, "apiserver")
	p := e.until("the exporter to report that the API server is down", answers(0), func(p page) {
		if !labeled("train-team")(p) {
			t.Errorf("API server down: labels of the first series = %v, want team=train-team on GPU 0",
				p[memory][0].Labels)
		}
	})
	if len(sharers(p)) != 6 {
		t.Errorf("API server down: owners = %q, want 6 of them", sharers(p))
	}
	start()
	n.await(t)
	n.must(t, "", "-n", "ml", "label", "pod", "train", "team=vision", "--overwrite")
	e.until("the new value of the label", labeled("vision"))
}

// end sends SIGTERM to a process in each of the containers. It finds the processes by their cgroups, like the exporter.
func (n *node) end(t *testing.T, namespace, pod string, containers ...string) {
	t.Helper()
	uid := n.must(t, "", "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range containers {
		id := n.must(t, "", "-n", namespace, "get", "pod", pod, "-o",
			`jsonpath={.status.containerStatuses[?(@.name=="`+name+`")].containerID}`)
		container := strings.TrimPrefix(id, "containerd://")
		at := slices.IndexFunc(files, func(path string) bool {
			text, err := os.ReadFile(path)
			// the process may have exited already
			return err == nil && slices.Contains(process.Pods(string(text)), uid) &&
				strings.Contains(string(text), container)
		})
		if at < 0 {
			t.Fatalf("no process has the control group of container %s (%s) of pod %s/%s (%s)", name, container,
				namespace, pod, uid)
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

// staged is a pod with an init container, a main container and a sidecar. The main container gets the GPU of the init
// container, and the sidecar has an instance.
var staged = podOf("ml/staged", `  initContainers:
    - {name: prepare, image: "`+exporterImage+`", imagePullPolicy: Never, args: [--version],
       resources: {limits: {nvidia.com/gpu: 1}}}
    - {name: sidecar, image: "e2e.local/hold:1", restartPolicy: Always,
       resources: {limits: {nvidia.com/mig-3g.40gb: 1}}}
`, hold("main", "limits: {nvidia.com/gpu: 1}"))

// once returns the manifest of a pod whose containers are not restarted when they exit.
func once(name, resource string) string {
	return strings.Replace(pod(name, resource, 1), "spec:\n", "spec:\n  restartPolicy: Never\n", 1)
}

// deviceOf returns a device of the owner, or "" if the owner has none.
func deviceOf(p page, owner string) string {
	for device, o := range owners(p) {
		if o == owner {
			return device
		}
	}
	return ""
}

func TestPodsStartAndComplete(t *testing.T) {
	n := offering(t)
	n.image(t)
	e := n.export(t, "")
	n.run(t, staged+once("ml/brief", "nvidia.com/gpu"), "ml/staged", "ml/brief")

	// the init container's GPU is attributed to the main container, and the sidecar's instance to the sidecar
	holders := func(p page) []string { return slices.Sorted(maps.Values(owners(p))) }
	held := func(want ...string) func(page) bool {
		return func(p page) bool { return slices.Equal(holders(p), want) }
	}
	p := e.until("the owners of main container and sidecar",
		held("ml/brief/main", "ml/staged/main", "ml/staged/sidecar"))
	given := deviceOf(p, "ml/brief/main")

	// a completed pod owns no device, even if it still exists in the API server; its GPU goes to the next pod
	n.end(t, "ml", "brief", "main", "beside")
	n.must(t, "", "-n", "ml", "wait", "pod/brief", "--for=jsonpath={.status.phase}=Succeeded",
		"--timeout="+patience.String())
	e.until("the completed pod to lose its GPU", held("ml/staged/main", "ml/staged/sidecar"))
	n.run(t, pod("ml/heir", "nvidia.com/gpu", 1), "ml/heir")
	p = e.until("the next pod as the only owner", held("ml/heir/main", "ml/staged/main", "ml/staged/sidecar"),
		func(p page) {
			if slices.Contains(holders(p), "ml/brief/main") {
				t.Error("completed pod owns a GPU, want none")
			}
		})
	if got := deviceOf(p, "ml/heir/main"); got != given {
		t.Errorf("next pod has GPU %q, want GPU %q of the completed pod", got, given)
	}
}

// onThisNode changes manifests so that this node can run them. It leaves out resources of software that is not
// installed. DaemonSets use the host network and the address of the API server on this node, because the node has no
// pod network and no cluster services. change may edit a DaemonSet.
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
				core.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: nodeIP},
				core.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: "6443"})
			change(&set)
			doc = asJSON(t, &set)
		}
		out = append(out, doc)
	}
	return strings.Join(out, "\n---\n")
}

// applied applies manifests, and deletes their objects when the test ends. It then waits until port 9400 is closed,
// because pods of the next test listen on it.
func (n *node) applied(t *testing.T, manifests string) {
	t.Helper()
	n.must(t, manifests, "apply", "-f", "-")
	t.Cleanup(func() {
		if t.Failed() {
			for _, namespace := range []string{"gpu-monitoring", "gpu-operator", "default"} {
				about, _ := n.kubectl("", "-n", namespace, "describe", "daemonset,pod")
				logs, _ := n.kubectl("", "-n", namespace, "logs", "-l", "app.kubernetes.io/name=dcgm-exporter",
					"--tail=40")
				t.Logf("%s:\n%s\n%s", namespace, about, logs)
			}
		}
		n.must(t, manifests, "delete", "--ignore-not-found", "--wait", "--grace-period=1", "-f", "-")
		eventually(t, func() error {
			resp, err := http.Get("http://" + nodeIP + ":9400/health")
			if err != nil {
				return nil
			}
			resp.Body.Close()
			return errors.New("port 9400 is still served")
		})
	})
}
