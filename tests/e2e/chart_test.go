//go:build e2e

package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// Where the chart is installed.
const (
	chartFolder    = "../../deployment/chart"
	chartNamespace = "gpu-monitoring"
)

// The images of the monitoring that the test brings.
const (
	operatorImage   = "e2e.local/prometheus-operator:1"
	reloaderImage   = "e2e.local/prometheus-config-reloader:1"
	prometheusImage = "e2e.local/prometheus:1"
)

// helm runs helm as an administrator and returns what it printed.
func (n *node) helm(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(n.programs, "helm"), args...)
	home := filepath.Join(n.state, "helm")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(n.state, "admin.kubeconfig"),
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (n *node) mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.helm(args...)
	if err != nil {
		about, _ := n.kubectl("", "-n", chartNamespace, "describe", "daemonset,pod")
		logs, _ := n.kubectl("", "-n", chartNamespace, "logs", "-l", "app.kubernetes.io/name=dcgm-exporter", "--tail=40")
		t.Fatalf("helm %s: %v\n%s\n%s\n%s", strings.Join(args, " "), err, out, about, logs)
	}
	return out
}

// release installs or upgrades the release "dcgm-exporter" with values in YAML, waits for its pods,
// and removes it with the test.
func (n *node) release(t *testing.T, chart string, values ...string) {
	t.Helper()
	args := []string{"upgrade", "--install", "dcgm-exporter", chart, "-n", chartNamespace, "--reset-values", "--wait", "--timeout", patience.String()}
	for i, v := range values {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("values-%d.yaml", i))
		if err := os.WriteFile(file, []byte(v), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-f", file)
	}
	n.mustHelm(t, args...)
	n.rolledOut(t)
}

// rolledOut waits for the DaemonSet: helm --wait does not wait for as many pods as may be
// unavailable, which is the only one here.
func (n *node) rolledOut(t *testing.T) {
	t.Helper()
	if out, err := n.kubectl("", "-n", chartNamespace, "rollout", "status", "daemonset/dcgm-exporter", "--timeout="+patience.String()); err != nil {
		about, _ := n.kubectl("", "-n", chartNamespace, "describe", "daemonset,pod")
		logs, _ := n.kubectl("", "-n", chartNamespace, "logs", "-l", "app.kubernetes.io/name=dcgm-exporter", "--tail=40")
		t.Fatalf("the DaemonSet is not ready: %s\n%s\n%s", out, about, logs)
	}
}

// uninstalled removes the release when the test ends, and waits until its port is free.
func (n *node) uninstalled(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		n.mustHelm(t, "uninstall", "dcgm-exporter", "-n", chartNamespace, "--ignore-not-found", "--wait", "--timeout", patience.String())
		eventually(t, func() bool {
			resp, err := http.Get("http://" + nodeIP + ":9400/health")
			if err == nil {
				resp.Body.Close()
			}
			return err != nil
		}, func() string { return "port 9400 is still served" })
		left := n.must(t, "", "get", "all,configmap,secret,serviceaccount,servicemonitor,podmonitor,prometheusrule,resourcequota,networkpolicy,clusterrole,clusterrolebinding,role,rolebinding",
			"-A", "-l", "app.kubernetes.io/instance=dcgm-exporter", "-o", "name")
		for name := range strings.Lines(left) {
			if !strings.Contains(name, "dcgm-exporter-test") && !strings.HasPrefix(name, "pod/") { // helm keeps pods of tests
				t.Errorf("left after the release: %s", name)
			}
		}
		_, _ = n.kubectl("", "-n", chartNamespace, "delete", "pod", "dcgm-exporter-test", "--ignore-not-found", "--grace-period=1")
	})
}

// monitored gives the node the Prometheus Operator and its kinds, once.
func (n *node) monitored(t *testing.T) {
	t.Helper()
	if _, err := n.kubectl("", "get", "deployment", "prometheus-operator"); err == nil {
		return
	}
	program := func(name string) map[string][]byte {
		return map[string][]byte{"bin/" + name: read(t, filepath.Join(n.programs, name))}
	}
	n.load(t, imageOf(t, operatorImage, "/bin/prometheus-operator", program("prometheus-operator")))
	n.load(t, imageOf(t, reloaderImage, "/bin/prometheus-config-reloader", program("prometheus-config-reloader")))
	var docs []string
	for doc := range strings.SplitSeq(string(read(t, filepath.Join(n.programs, "prometheus-operator.yaml"))), "\n---\n") {
		if !strings.Contains(doc, "\nkind: Deployment\n") {
			docs = append(docs, doc)
			continue
		}
		var deployment apps.Deployment
		if err := yaml.Unmarshal([]byte(doc), &deployment); err != nil {
			t.Fatal(err)
		}
		pod := &deployment.Spec.Template.Spec
		pod.HostNetwork = true
		operator := &pod.Containers[0]
		operator.Image = operatorImage
		operator.Env = append(operator.Env, apiServer()...)
		operator.Ports = nil // of the node's, 8080 is that of the reloader beside Prometheus
		operator.Args = append(operator.Args, "--web.listen-address=127.0.0.1:8079")
		for i, arg := range operator.Args {
			if strings.HasPrefix(arg, "--prometheus-config-reloader=") {
				operator.Args[i] = "--prometheus-config-reloader=" + reloaderImage
			}
		}
		docs = append(docs, string(asJSON(t, &deployment)))
	}
	n.must(t, strings.Join(docs, "\n---\n"), "apply", "--server-side", "--force-conflicts", "-f", "-")
	n.must(t, "", "wait", "--for=condition=Available", "deployment/prometheus-operator", "--timeout="+patience.String())
}

// apiServer is the environment of a pod that reads the API server: the node serves none of the
// cluster's addresses.
func apiServer() []core.EnvVar {
	return []core.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: nodeIP}, {Name: "KUBERNETES_SERVICE_PORT", Value: "6443"}}
}

// A prometheus is a running one, in the cluster.
type prometheus struct{ t *testing.T }

// prometheus runs a Prometheus through the operator, which takes every monitor and rule with the
// label release=e2e.
func (n *node) prometheus(t *testing.T) prometheus {
	t.Helper()
	// Debian's would not do: it is built without discovery in Kubernetes.
	n.load(t, imageOf(t, prometheusImage, "/bin/prometheus", map[string][]byte{
		"bin/prometheus": read(t, filepath.Join(n.programs, "prometheus")), "prometheus/.keep": nil, "etc/prometheus/.keep": nil,
	}))
	n.run(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: lab}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-prometheus}
rules:
- {apiGroups: [""], resources: [nodes, services, endpoints, pods], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-prometheus}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: lab}]
---
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: e2e, namespace: lab}
spec:
  image: `+prometheusImage+`
  version: 3.5.0
  replicas: 1
  hostNetwork: true
  serviceAccountName: prometheus
  serviceDiscoveryRole: EndpointSlice
  securityContext: {runAsUser: 0}
  containers: [{name: prometheus, env: `+string(asJSON(t, apiServer()))+`}]
  serviceMonitorSelector: {matchLabels: {release: e2e}}
  serviceMonitorNamespaceSelector: {}
  podMonitorSelector: {matchLabels: {release: e2e}}
  podMonitorNamespaceSelector: {}
  ruleSelector: {matchLabels: {release: e2e}}
  ruleNamespaceSelector: {}
  scrapeInterval: 2s
  evaluationInterval: 2s
`)
	return prometheus{t}
}

// get requests a path of the API, and reports whether it has answered.
func (p prometheus) get(path string, into any) bool {
	resp, err := http.Get("http://" + nodeIP + ":9090/api/v1/" + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(into) == nil
}

// query returns the labels of the series of an expression.
func (p prometheus) query(expression string) []map[string]string {
	var answer struct {
		Data struct {
			Result []struct{ Metric map[string]string }
		}
	}
	p.get("query?query="+url.QueryEscape(expression), &answer)
	var out []map[string]string
	for _, r := range answer.Data.Result {
		out = append(out, r.Metric)
	}
	return out
}

// until waits until an expression has series as wanted.
func (p prometheus) until(what, expression string, wanted func([]map[string]string) bool) {
	p.t.Helper()
	var last []map[string]string
	eventually(p.t, func() bool { last = p.query(expression); return wanted(last) },
		func() string {
			var targets any
			p.get("targets?state=active", &targets)
			return fmt.Sprintf("not seen: %s; last: %v\ntargets: %v", what, last, targets)
		})
}

// onNode are the values without which no pod runs on this node, and those that make the test short.
func onNode(t *testing.T) string {
	return `
hostNetwork: true
extraEnv: ` + string(asJSON(t, apiServer())) + `
readinessProbe: {periodSeconds: 1, initialDelaySeconds: 0}
livenessProbe: {initialDelaySeconds: 2}
serviceMonitor: {interval: 2s, scrapeTimeout: 2s, additionalLabels: {release: e2e}}
`
}

const simulated = `
exporter: {source: sim, collectInterval: 500ms}
arguments: ["--sim-node=` + simNode + `"]
kubernetes: {enablePodLabels: true, enablePodUID: true}
prometheusRule: {enabled: true, additionalLabels: {release: e2e}}
dashboards: {enabled: true}
test: {url: "http://` + nodeIP + `:9400/metrics", wait: 30s}
`

// secured are values with TLS and passwords.
const secured = `
tlsServerConfig: {enabled: true}
basicAuth: {users: {prometheus: s3cret, ann: other}}
serviceMonitor: {honorLabels: true}
`

// TestChart installs the chart as docs/kubernetes.md says, and changes its values one after
// another.
func TestChart(t *testing.T) {
	n := theNode(t)
	n.image(t)
	n.monitored(t)
	offer(t, n)
	manifest, names, want := manyPods()
	n.run(t, manifest, names...)
	n.uninstalled(t)
	n.release(t, chartFolder, onNode(t), simulated)
	e := &exporter{t: t, url: "http://" + nodeIP + ":9400/metrics"}
	e.showing(want)
	uid := n.must(t, "", "-n", "ml", "get", "pod", "train", "-o", "jsonpath={.metadata.uid}")
	e.until("labels and UIDs of pods", func(p page) bool {
		return slices.ContainsFunc(p.series(memory), func(l map[string]string) bool {
			return l["pod"] == "train" && l["namespace"] == "ml" && l["team"] == "train-team" && l["pod_uid"] == uid
		})
	})
	if out := n.mustHelm(t, "test", "dcgm-exporter", "-n", chartNamespace, "--timeout", patience.String()); !strings.Contains(out, "Succeeded") {
		t.Errorf("helm test: %s", out)
	}

	pod := exporterPodName(t, n)
	// Other counters are loaded without a restart.
	few := "customMetrics: |\n  DCGM_FI_DEV_GPU_TEMP, gauge, Temperature (in C).\n  " + memory + ", gauge, Memory (in MiB).\n"
	n.release(t, chartFolder, onNode(t), simulated, few)
	e.until("the counters of the values alone", func(p page) bool {
		return p["DCGM_FI_DEV_GPU_TEMP"] != nil && p["DCGM_FI_DEV_SM_CLOCK"] == nil
	})
	if now := exporterPodName(t, n); now != pod {
		t.Errorf("the pod %s became %s: the counters are loaded by a restart", pod, now)
	}

	// TLS and passwords.
	n.release(t, chartFolder, onNode(t), simulated, few, secured)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	status := func(user, password string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+nodeIP+":9400/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth(user, password)
		resp, err := client.Do(request)
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		return resp.Status
	}
	for password, want := range map[string]string{"s3cret": "200 OK", "wrong": "401 Unauthorized"} {
		if got := status("prometheus", password); got != want {
			t.Errorf("with the password %s: %s, want %s", password, got, want)
		}
	}
	secrets := func() string {
		return n.must(t, "", "-n", chartNamespace, "get", "secret", "dcgm-exporter-tls", "dcgm-exporter-web-config", "-o", `jsonpath={range .items[*]}{.data}{end}`)
	}
	was := secrets()
	n.release(t, chartFolder, onNode(t), simulated, few, secured)
	if secrets() != was {
		t.Error("an upgrade with the same values changes certificates or hashes")
	}

	// And back to the first one.
	n.mustHelm(t, "rollback", "dcgm-exporter", "1", "-n", chartNamespace, "--wait", "--timeout", patience.String())
	n.rolledOut(t)
	e.showing(want)
	e.until("the default counters again", func(p page) bool { return p["DCGM_FI_DEV_SM_CLOCK"] != nil })
}

// TestChartIsScraped: a Prometheus finds the chart's pods through its ServiceMonitor, in the clear
// and with TLS and a password, and has its rules.
func TestChartIsScraped(t *testing.T) {
	n := theNode(t)
	n.image(t)
	n.monitored(t)
	offer(t, n)
	manifest, names, _ := manyPods()
	n.run(t, manifest, names...)
	p := n.prometheus(t)
	n.uninstalled(t)
	n.release(t, chartFolder, onNode(t), simulated)
	p.until("a target that is up", `up{job="dcgm-exporter"} == 1`, func(s []map[string]string) bool {
		return len(s) == 1 && s[0]["namespace"] == chartNamespace && s[0]["service"] == "dcgm-exporter"
	})
	p.until("the GPU of a pod, with the labels that NVIDIA's chart gives by default", memory, func(s []map[string]string) bool {
		return slices.ContainsFunc(s, func(l map[string]string) bool {
			return l["exported_pod"] == "train" && l["exported_namespace"] == "ml" && l["exported_container"] == "main" && l["team"] == "train-team" && l["gpu"] == "0"
		})
	})
	rules(t, p)
	n.release(t, chartFolder, onNode(t), simulated, secured)
	p.until("a scrape over TLS with a password", memory+`{pod="train"} and on(instance) up{job="dcgm-exporter"} == 1`, func(s []map[string]string) bool { return len(s) > 0 })
}

// rules waits until Prometheus has every group of the chart, and each rule is sound.
func rules(t *testing.T, p prometheus) {
	t.Helper()
	var want []string
	files, err := filepath.Glob(filepath.Join(chartFolder, "files/rules/*.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		var file struct{ Groups []struct{ Name string } }
		if err := yaml.Unmarshal(read(t, f), &file); err != nil {
			t.Fatal(err)
		}
		for _, g := range file.Groups {
			want = append(want, g.Name)
		}
	}
	slices.Sort(want)
	var seen string
	eventually(t, func() bool {
		var answer struct {
			Data struct {
				Groups []struct {
					Name     string
					Interval float64 // seconds
					Rules    []struct{ Name, Health, LastError string }
				}
			}
		}
		var got []string
		if !p.get("rules", &answer) {
			return false
		}
		seen = ""
		for _, g := range answer.Data.Groups {
			got = append(got, g.Name)
			for _, r := range g.Rules {
				// What is evaluated every five minutes has not been yet, and is taken in all the same.
				if waits := r.Health == "unknown" && g.Interval > patience.Seconds(); r.Health != "ok" && !waits {
					seen += fmt.Sprintf("%s: %s %s %s\n", g.Name, r.Name, r.Health, r.LastError)
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			seen += fmt.Sprintf("groups %q, want %q", got, want)
		}
		return seen == ""
	}, func() string { return seen })
	t.Logf("%d groups of rules", len(want))
}

// exporterPodName returns the name of the only pod of the DaemonSet.
func exporterPodName(t *testing.T, n *node) string {
	t.Helper()
	return n.must(t, "", "-n", chartNamespace, "get", "pod", "-l", "app.kubernetes.io/name=dcgm-exporter,app.kubernetes.io/component=dcgm-exporter", "-o", "name")
}

// TestEveryObjectOfTheChart applies, on the server's side and without effect, what the chart
// renders with everything on, and with what excludes that.
func TestEveryObjectOfTheChart(t *testing.T) {
	n := theNode(t)
	n.monitored(t)
	for name, values := range map[string]string{
		"everything": `
podMonitor: {enabled: true}
serviceMonitor: {enabled: true}
prometheusRule: {enabled: true}
dashboards: {enabled: true}
networkPolicy: {enabled: true, from: [{namespaceSelector: {}}], egress: []}
priorityClassQuota: {create: true}
profiling: {enabled: true}
sharedGPUs: {enabled: true}
gpuOperator: {client: true}
config: {enabled: true}
tlsServerConfig: {enabled: true, clientAuthType: RequireAndVerifyClientCert}
basicAuth: {users: {ann: x}}
kubernetes: {enablePodLabels: true, enablePodUID: true, readNode: true}
kubernetesDRA: {enabled: true}
debugDump: {enabled: true}
state: {enabled: true}
arguments: ["-m", "default:mine", "-f", "/etc/dcgm-exporter/default-counters.csv"]
`,
		"defaults":   "",
		"restricted": "kubernetes: {podResources: false}\nservice: {clusterIP: None}\nserviceMonitor: {tlsConfig: {insecureSkipVerify: true}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
				t.Fatal(err)
			}
			out := n.mustHelm(t, "template", "dcgm-exporter", chartFolder, "-n", chartNamespace, "-f", file)
			said := n.must(t, out, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
			if strings.Count(said, "serverside-applied") != strings.Count(out, "\nkind: ") {
				t.Errorf("of %d objects: %s", strings.Count(out, "\nkind: "), said)
			}
		})
	}
}

// TestPodSecurity: without the kubelet's socket the pods meet the profile "restricted", with it
// they do not.
func TestPodSecurity(t *testing.T) {
	n := theNode(t)
	n.monitored(t)
	n.must(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: restricted, labels: {pod-security.kubernetes.io/enforce: restricted}}\n", "apply", "-f", "-")
	n.must(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: dcgm-exporter, namespace: restricted}\n", "apply", "-f", "-")
	for values, allowed := range map[string]bool{
		"kubernetes.podResources=false":                              true,
		"kubernetes.podResources=false,networkPolicy.enabled=true":   true,
		"kubernetes.podResources=false,tlsServerConfig.enabled=true": true,
		"kubernetes.podResources=true":                               false,
		"kubernetes.podResources=false,profiling.enabled=true":       false,
		"kubernetes.podResources=false,sharedGPUs.enabled=true":      false,
	} {
		out := n.mustHelm(t, "template", "dcgm-exporter", chartFolder, "-n", "restricted", "--set", values+",priorityClassName=")
		for doc := range strings.SplitSeq(out, "\n---\n") {
			if !strings.Contains(doc, "\nkind: DaemonSet\n") {
				continue
			}
			var set apps.DaemonSet
			if err := yaml.UnmarshalStrict([]byte(doc), &set); err != nil {
				t.Fatal(err)
			}
			pod := core.Pod{Spec: set.Spec.Template.Spec}
			pod.APIVersion, pod.Kind, pod.Name, pod.Namespace = "v1", "Pod", "exporter", "restricted"
			said, err := n.kubectl(string(asJSON(t, &pod)), "create", "--dry-run=server", "-f", "-")
			if (err == nil) != allowed {
				t.Errorf("%s: allowed %v, want %v: %s", values, err == nil, allowed, said)
			}
			if err != nil && !strings.Contains(said, "violates PodSecurity") {
				t.Errorf("%s: %s", values, said)
			}
		}
	}
}

// TestUpgradeFromNVIDIAsChart installs what NVIDIA's chart renders, upgrades the release to this
// chart with NVIDIA's own values file, and rolls it back. The page is the same, and so is the
// DaemonSet.
func TestUpgradeFromNVIDIAsChart(t *testing.T) {
	n := theNode(t)
	rendered := material.Read(t, "data/upstream/dcgm-exporter/rendered/defaults.yaml")
	values := string(material.Read(t, "data/upstream/dcgm-exporter/chart-values.yaml"))
	n.monitored(t)
	n.dropIn(t)
	theirs := t.TempDir()
	for name, content := range map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: dcgm-exporter\nversion: 4.8.2\n",
		"templates/all.yaml": onThisNode(t, string(rendered), func(set *apps.DaemonSet) {
			set.Spec.Template.Spec.Containers[0].ReadinessProbe.InitialDelaySeconds = 0
		}),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(theirs, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(theirs, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.uninstalled(t)
	identity := func() string {
		return n.must(t, "", "-n", chartNamespace, "get", "daemonset", "dcgm-exporter", "-o", "jsonpath={.metadata.uid}")
	}
	counters := func() string {
		return n.must(t, "", "-n", chartNamespace, "get", "configmap", "exporter-metrics-config-map", "-o", "jsonpath={.data.metrics}")
	}
	n.release(t, theirs)
	serves(t, "http", counters(), false)
	was := identity()

	own := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(own, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	// As docs/kubernetes.md has it: what would be applied, and nothing is.
	plan := n.mustHelm(t, "upgrade", "dcgm-exporter", chartFolder, "-n", chartNamespace, "--reset-values", "-f", own, "--dry-run=server")
	if !strings.Contains(plan, "kind: DaemonSet") || strings.Count(n.mustHelm(t, "history", "dcgm-exporter", "-n", chartNamespace), "dcgm-exporter-") != 1 {
		t.Errorf("the dry run shows no DaemonSet, or left a revision:\n%s", plan)
	}
	n.release(t, chartFolder, values, onNode(t))
	serves(t, "http", counters(), false)
	if now := identity(); now != was {
		t.Errorf("the upgrade made another DaemonSet")
	}
	n.mustHelm(t, "rollback", "dcgm-exporter", "1", "-n", chartNamespace, "--wait", "--timeout", patience.String())
	n.rolledOut(t)
	serves(t, "http", counters(), false)
	if now := identity(); now != was {
		t.Errorf("the rollback made another DaemonSet")
	}
}
