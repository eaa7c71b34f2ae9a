//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
	"github.com/gpu-telemetry/dcgm-exporter/tests/reference"
)

// The images of NVIDIA's manifests, which this node has from the tests.
const (
	nvidiaImage    = "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless"
	validatorImage = "e2e.local/validator:1"
)

// goldenPage is what NVIDIA's exporter served for eight GPUs with a pod each.
const goldenPage = "data/reference-output/gpu8-default-k8s.prom"

// withLibraries adds programs of this machine to the files of an image, and the libraries that they
// need.
func withLibraries(t *testing.T, files map[string][]byte, programs map[string]string) {
	t.Helper()
	for to, from := range programs {
		files[to] = read(t, from)
		out, err := exec.Command("ldd", from).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", from, err)
		}
		for _, path := range regexp.MustCompile(`/\S+`).FindAllString(string(out), -1) {
			if path = strings.TrimSuffix(path, ":"); path != from {
				files[strings.TrimPrefix(path, "/")] = read(t, path)
			}
		}
	}
}

// load gives the node an image.
func (n *node) load(t *testing.T, archive []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(n.state, "host/run/containerd/containerd.sock")
	cmd := exec.Command(filepath.Join(n.programs, "ctr"), "--address", socket, "--namespace", "k8s.io", "images", "import", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// dropIn gives the node our image under the name of NVIDIA's, over the test library of DCGM with
// the GPUs of the golden page, and pods that hold them.
func (n *node) dropIn(t *testing.T) {
	t.Helper()
	golden := string(material.Read(t, goldenPage))
	library, err := fakedcgm.Build()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "dcgm-exporter")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "../../cmd/dcgm-exporter")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	files := map[string][]byte{
		"opt/dcgm/script": []byte("boot 1\n" + strings.Join(reference.Engine(t, 8, golden), "\n") + "\n"),
	}
	withLibraries(t, files, map[string]string{"usr/bin/dcgm-exporter": program, "opt/dcgm/libdcgm.so.4": filepath.Join(library, "libdcgm.so.4")})
	counters, err := filepath.Glob("../../etc/*.csv")
	if err != nil || len(counters) == 0 {
		t.Fatalf("no counters files: %v", err)
	}
	for _, path := range counters {
		files["etc/dcgm-exporter/"+filepath.Base(path)] = read(t, path)
	}
	n.load(t, imageOf(t, nvidiaImage, "/usr/bin/dcgm-exporter", files,
		"LD_LIBRARY_PATH=/opt/dcgm", "FAKEDCGM_SCRIPT=/opt/dcgm/script", "FAKEDCGM_COUNTERS=/tmp/counters"))

	servePlugins(t, n, map[string][]string{"nvidia.com/gpu": reference.UUIDs()})
	n.must(t, "", "wait", "node/"+nodeName, "--timeout="+patience.String(), `--for=jsonpath={.status.allocatable.nvidia\.com/gpu}=8`)
	n.must(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n", "apply", "-f", "-")
	manifest, names := "", []string{}
	for i := range 8 {
		name := fmt.Sprintf("team-a/train-%d", i)
		manifest, names = manifest+pod(name, "nvidia.com/gpu", 1), append(names, name)
	}
	n.run(t, manifest, names...)
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

// A golden is what of a page is compared: values by family and labels, without those of owners and
// of the host.
type golden map[string]float64

// goldenOf returns the samples of the families that wanted has, and the pod on each GPU.
func goldenOf(t *testing.T, text string, wanted func(string) bool) (golden, map[string]string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("the page does not parse: %v\n%s", err, text)
	}
	samples, pods := golden{}, map[string]string{}
	for name, family := range families {
		if !strings.HasPrefix(name, "DCGM_") || !wanted(name) {
			continue
		}
		for _, m := range family.Metric {
			var labels []string
			by := map[string]string{}
			for _, l := range m.Label {
				by[l.GetName()] = l.GetValue()
				switch l.GetName() {
				case "gpu", "UUID", "pci_bus_id", "device", "modelName", "err_code", "err_msg":
					labels = append(labels, l.GetName()+"="+l.GetValue())
				case "DCGM_FI_DRIVER_VERSION": // the chart's own file does not name it
					if wanted(l.GetName()) {
						labels = append(labels, l.GetName()+"="+l.GetValue())
					}
				}
			}
			if by["hostname"] == "" {
				t.Errorf("%s has no host", name)
			}
			slices.Sort(labels)
			samples[family.GetType().String()+" "+name+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if by["pod"] != "" {
				pods[by["gpu"]] = by["namespace"] + "/" + by["pod"] + "/" + by["container"]
			}
		}
	}
	return samples, pods
}

// serves waits until the node's port 9400 serves the golden page, as far as the counters file names
// it, with a pod on each GPU. DCGM has profiling fields after an interval, which the chart
// leaves at 30 s: they are waited for with profiling alone.
func serves(t *testing.T, scheme, counters string, profiling bool) {
	t.Helper()
	theirs := string(material.Read(t, goldenPage))
	wanted := func(name string) bool {
		if !profiling && strings.HasPrefix(name, "DCGM_FI_PROF_") {
			return false
		}
		return counters == "" || regexp.MustCompile(`(?m)^\s*`+name+`\s*,`).MatchString(counters)
	}
	want, owners := goldenOf(t, theirs, wanted)
	if len(want) == 0 || len(owners) != 8 {
		t.Fatalf("%d samples and %d owners on the golden page", len(want), len(owners))
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the certificate is the chart's own
	}}
	var diff string
	eventually(t, func() bool {
		resp, err := client.Get(scheme + "://" + nodeIP + ":9400/metrics")
		if err != nil {
			diff = err.Error()
			return false
		}
		defer resp.Body.Close()
		inGolden := func(name string) bool { // of a file with more fields than NVIDIA's page was made of
			return wanted(name) && (counters != "" || strings.Contains(theirs, name))
		}
		got, pods := goldenOf(t, bodyOf(t, resp), inGolden)
		diff = cmp.Diff(want, got) + cmp.Diff(slices.Sorted(maps.Values(owners)), slices.Sorted(maps.Values(pods)))
		return diff == ""
	}, func() string { return "page (-theirs +ours):\n" + diff })
}

// TestNVIDIAsChart applies the chart of NVIDIA's exporter as it is rendered with several settings;
// the page is the one that NVIDIA's exporter serves.
func TestNVIDIAsChart(t *testing.T) {
	n := theNode(t)
	dir := material.Path(t, "data/upstream/dcgm-exporter/rendered")
	n.dropIn(t)
	workloads := reference.Chart(t)
	if len(workloads) < 8 {
		t.Fatalf("%d workloads in %s", len(workloads), dir)
	}
	for _, w := range workloads {
		t.Run(w.Name, func(t *testing.T) {
			manifests := string(read(t, filepath.Join(dir, w.Name+".yaml")))
			n.applied(t, onThisNode(t, manifests, func(set *apps.DaemonSet) {
				if set.Spec.Template.Spec.Containers[0].Image != nvidiaImage {
					t.Errorf("the chart's image is %s", set.Spec.Template.Spec.Containers[0].Image)
				}
				if set.Namespace == "" {
					set.Namespace = "gpu-monitoring"
				}
			}))
			web := w.Files["/etc/dcgm-exporter/web-config.yaml"]
			scheme := "http"
			if strings.Contains(web, "tls_server_config") {
				scheme = "https"
			}
			if strings.Contains(web, "basic_auth_users") {
				eventually(t, func() bool {
					resp, err := http.Get("http://" + nodeIP + ":9400/metrics")
					if err != nil {
						return false
					}
					resp.Body.Close()
					return resp.StatusCode == http.StatusUnauthorized
				}, func() string { return "no server that requires a password" })
				return
			}
			serves(t, scheme, w.Files["/etc/dcgm-exporter/default-counters.csv"], w.Name == "defaults")
			if w.Env["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"] == "true" {
				uid := n.must(t, "", "-n", "team-a", "get", "pod", "train-3", "-o", "jsonpath={.metadata.uid}")
				e := &exporter{t: t, url: "http://" + nodeIP + ":9400/metrics"}
				e.until("the UID of a pod", func(p page) bool {
					return slices.ContainsFunc(p.series(memory), func(l map[string]string) bool { return l["pod"] == "train-3" && l["pod_uid"] == uid })
				})
			}
		})
	}
}

// TestTheOperatorsManifests applies what the GPU Operator does, filled in as it fills it in, with
// an engine in the exporter and with a remote one.
func TestTheOperatorsManifests(t *testing.T) {
	n := theNode(t)
	n.dropIn(t)
	validator := map[string][]byte{}
	withLibraries(t, validator, map[string]string{"bin/sh": "/bin/sh", "bin/sleep": "/bin/sleep"})
	n.load(t, imageOf(t, validatorImage, "/bin/sh", validator, "PATH=/bin"))
	n.must(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: gpu-operator}\n", "apply", "-f", "-")
	n.run(t, strings.TrimSuffix(strings.TrimSpace(runtimeClass), "---"))
	n.label(t, "nvidia.com/gpu.deploy.dcgm-exporter", "true")
	ready := filepath.Join(n.state, "host/run/nvidia/validations")
	if err := os.MkdirAll(ready, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ready, "toolkit-ready"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var manifests []string
	for _, file := range []string{"0100_service_account", "0200_role", "0210_clusterrole", "0300_rolebinding", "0310_clusterrolebinding", "0400_service", "0800_daemonset"} {
		manifests = append(manifests, strings.ReplaceAll(
			string(reference.OperatorState(t, "state-dcgm-exporter/"+file+".yaml")), `namespace: "FILLED BY THE OPERATOR"`, "namespace: gpu-operator"))
	}
	for name, engine := range map[string]string{"embedded": "", "remote": "nvidia-dcgm:5555"} {
		t.Run(name, func(t *testing.T) {
			n.applied(t, onThisNode(t, strings.Join(manifests, "\n---\n"), func(set *apps.DaemonSet) {
				pod, class := &set.Spec.Template.Spec, "nvidia"
				pod.RuntimeClassName = &class
				pod.InitContainers[0].Image, pod.Containers[0].Image = validatorImage, nvidiaImage
				if engine != "" {
					pod.Containers[0].Env = append(pod.Containers[0].Env, core.EnvVar{Name: "DCGM_REMOTE_HOSTENGINE_INFO", Value: engine})
				}
			}))
			serves(t, "http", "", engine != "")
		})
	}
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

func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
