//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	running "github.com/gpu-telemetry/dcgm-exporter/tests/fake/exporter"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/wait"
)

// patience bounds every wait. It is generous on purpose: no test measures speed.
const patience = 90 * time.Second

// nodeName and nodeIP are the same as in node/settings.sh.
const (
	nodeName = "e2e-node"
	nodeIP   = "10.111.7.2"
)

// A node is the Kubernetes node that run.sh started.
type node struct{ programs, state string }

func theNode(t *testing.T) *node {
	t.Helper()
	n := &node{programs: os.Getenv("E2E_PROGRAMS"), state: os.Getenv("E2E_NODE")}
	if n.programs == "" || n.state == "" {
		t.Fatal("E2E_PROGRAMS and E2E_NODE are not set: run tests/e2e/run.sh")
	}
	// the namespaces are kept for the next test, because the API server takes many seconds to delete one
	manifest := ""
	for _, name := range []string{"ml", "web", "lab", "gpu-monitoring"} {
		manifest += "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n"
	}
	n.must(t, manifest, "apply", "-f", "-")
	return n
}

// kubelet returns the path, on this machine, of a file in the node's kubelet directory.
func (n *node) kubelet(path ...string) string {
	return filepath.Join(append([]string{n.state, "host/lib/kubelet"}, path...)...)
}

// stop stops a program of the node ("kubelet", "apiserver"), and returns a function that starts it again. The node's
// supervisor stops the program while a marker file exists.
func (n *node) stop(t *testing.T, program string) (start func()) {
	t.Helper()
	stopped := filepath.Join(n.state, program+".stopped")
	if err := os.WriteFile(stopped, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start = func() {
		if err := os.RemoveAll(stopped); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(start)
	return start
}

// kubectl runs kubectl as administrator and returns its output. If kubectl fails, it returns the standard error
// instead.
func (n *node) kubectl(input string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(n.programs, "kubectl"),
		append([]string{"--kubeconfig", filepath.Join(n.state, "admin.kubeconfig")}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if err != nil {
		return said.String(), err
	}
	return out.String(), nil
}

func (n *node) must(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, err := n.kubectl(input, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// await waits until the API server answers.
func (n *node) await(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		out, err := n.kubectl("", "get", "--raw", "/readyz")
		if err != nil {
			return fmt.Errorf("API server does not answer: %w: %s", err, out)
		}
		return nil
	})
}

// run applies a manifest until the test ends, and waits until its pods are ready.
func (n *node) run(t *testing.T, manifest string, pods ...string) {
	t.Helper()
	n.must(t, manifest, "apply", "-f", "-")
	t.Cleanup(func() {
		n.must(t, manifest, "delete", "--ignore-not-found", "--wait", "-f", "-")
	})
	for _, pod := range pods {
		namespace, name, _ := strings.Cut(pod, "/")
		args := []string{"-n", namespace, "wait", "--for=condition=Ready", "--timeout=" + patience.String(),
			"pod/" + name}
		if out, err := n.kubectl("", args...); err != nil {
			about, _ := n.kubectl("", "-n", namespace, "describe", "pod", name)
			t.Fatalf("pod %s is not ready: %s\n%s", pod, out, about)
		}
	}
}

// simNode is the simulated node whose devices the plugins offer. GPU 3 has two MIG instances.
const simNode = "shared"

// devices returns the simulated node's devices.
func devices(t *testing.T) []gpu.Device {
	t.Helper()
	source, err := sim.New(sim.Options{Node: simNode, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	session, err := source.Open(t.Context(), &gpu.Plan{
		Devices: gpu.Selector{Flex: true},
		Fields:  []gpu.Field{{ID: 252, Name: memory, Levels: gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	return session.Topology().Devices
}

// memory is a family that has a series for each GPU and each MIG instance.
const memory = "DCGM_FI_DEV_FB_USED"

// An exporter is a running exporter, in the test process or in a pod.
type exporter struct {
	t   *testing.T
	url string
}

// export runs an exporter of the simulated node until the test ends. By default, it queries the kubelet twice a second.
// It queries the API server only if kubeconfig is not empty.
func (n *node) export(t *testing.T, kubeconfig string, args ...string) *exporter {
	t.Helper()
	env := map[string]string{"NODE_NAME": nodeName, "KUBECONFIG": kubeconfig}
	r := running.Start(t, patience, app.Process{
		Args: append([]string{
			"--source=sim", "--sim-node=" + simNode, "-c", "500", "--collectors=../../etc/default-counters.csv",
			"--kubernetes", "--pod-resources-kubelet-socket=" + n.kubelet("pod-resources/kubelet.sock"),
		}, args...),
		Env: func(name string) (string, bool) { v := env[name]; return v, v != "" },
	})
	t.Cleanup(func() {
		r.Cancel()
		if err := <-r.Result; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return &exporter{t: t, url: "http://" + r.Address + "/metrics"}
}

type page = prom.Page

func (e *exporter) scrape() page {
	e.t.Helper()
	text, err := prom.Scrape(e.url)
	if err != nil {
		e.t.Fatal(err)
	}
	return prom.Parse(e.t, text)
}

// owners returns "namespace/pod/container" by device, such as "0" for a GPU and "3/1" for an instance. Devices without
// an owner are left out.
func owners(p page) map[string]string { return p.Owned(memory, "namespace", "pod", "container") }

// until scrapes until wanted returns true for a page. It calls every function in always with each page.
func (e *exporter) until(what string, wanted func(page) bool, always ...func(page)) (p page) {
	e.t.Helper()
	eventually(e.t, func() error {
		p = e.scrape()
		for _, f := range always {
			f(p)
		}
		if !wanted(p) {
			return fmt.Errorf("timed out waiting for %s; owners on the last page: %v", what, owners(p))
		}
		return nil
	})
	return p
}

// eventually calls try until it returns no error. After patience, the test ends with the last error.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	if err := wait.Until(patience, try); err != nil {
		t.Fatal(err)
	}
}

// showing waits for a page with exactly these owners.
func (e *exporter) showing(want map[string]string, always ...func(page)) page {
	e.t.Helper()
	return e.until("the owners "+strings.Join(sorted(want), ", "),
		func(p page) bool { return maps.Equal(owners(p), want) }, always...)
}
