package chart

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Values files have what YAML makes a boolean or a number where the API wants a string, and --set
// makes one of "true" and of "9400". The API server refuses such an object with the path in its own
// type; the chart writes a string.
func TestStringsThatYAMLReadsOtherwise(t *testing.T) {
	c := load(t, folder)
	for written, meant := range map[string]string{
		"nodeSelector: {nvidia.com/gpu.present: true, shard: 7}":                                                               `nodeSelector: {nvidia.com/gpu.present: "true", shard: "7"}`,
		"nodeSelector: {node-role.kubernetes.io/control-plane: null}":                                                          `nodeSelector: {node-role.kubernetes.io/control-plane: ""}`,
		"podAnnotations: {prometheus.io/scrape: true, prometheus.io/port: 9400}":                                               `podAnnotations: {prometheus.io/scrape: "true", prometheus.io/port: "9400"}`,
		"daemonSetAnnotations: {revision: 20260101}":                                                                           `daemonSetAnnotations: {revision: "20260101"}`,
		"podLabels: {version: 1.5, canary: false}":                                                                             `podLabels: {version: "1.5", canary: "false"}`,
		"service: {annotations: {prometheus.io/scrape: true, prometheus.io/port: 9400}}":                                       `service: {annotations: {prometheus.io/scrape: "true", prometheus.io/port: "9400"}}`,
		"serviceAccount: {annotations: {eks.amazonaws.com/token-expiration: 86400}}":                                           `serviceAccount: {annotations: {eks.amazonaws.com/token-expiration: "86400"}}`,
		"serviceMonitor: {additionalLabels: {monitored: true}}":                                                                `serviceMonitor: {additionalLabels: {monitored: "true"}}`,
		"podMonitor: {enabled: true, additionalLabels: {monitored: true}}":                                                     `podMonitor: {enabled: true, additionalLabels: {monitored: "true"}}`,
		"prometheusRule: {enabled: true, additionalLabels: {monitored: true}}":                                                 `prometheusRule: {enabled: true, additionalLabels: {monitored: "true"}}`,
		"dashboards: {enabled: true, labels: {grafana_dashboard: 1}, annotations: {order: 2}}":                                 `dashboards: {enabled: true, labels: {grafana_dashboard: "1"}, annotations: {order: "2"}}`,
		"tolerations: [{key: gpu, value: true, effect: NoSchedule, tolerationSeconds: 30}]":                                    `tolerations: [{key: gpu, value: "true", effect: NoSchedule, tolerationSeconds: 30}]`,
		"extraEnv: [{name: DCGM_EXPORTER_INTERVAL, value: 1000}, {name: DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE, value: 1000000}]": `extraEnv: [{name: DCGM_EXPORTER_INTERVAL, value: "1000"}, {name: DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE, value: "1000000"}]`,
	} {
		if d := cmp.Diff(mustRender(t, c, meant).docs, mustRender(t, c, written).docs); d != "" {
			t.Errorf("%s (-with quotes +without):\n%s", written, d)
		}
	}
	for values, want := range map[string]string{
		"podLabels: {app: {kubernetes: {io/name: x}}}": "/podLabels/app", // --set podLabels.app.kubernetes.io/name=x
		"nodeSelector: {nvidia: {com/gpu: x}}":         "/nodeSelector/nvidia",
	} {
		if _, err := render(c, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want an error about %s", values, err, want)
		}
	}
}

// The API server refuses a container that is privileged, or has CAP_SYS_ADMIN by that name, and may
// not escalate. Values for GKE have privileged alone, and the chart's default is that it may not.
func TestPrivileged(t *testing.T) {
	c := load(t, folder)
	for values, refused := range map[string]bool{
		"securityContext: {privileged: true}":                     true,
		"securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}}": true,
		"securityContext: {privileged: false}":                    false,
		"securityContext: {capabilities: {add: [SYS_ADMIN]}}":     false,
		"{}": false,
		"securityContext: {privileged: true, allowPrivilegeEscalation: true}":      true,
		"profiling: {enabled: true}\nsecurityContext: {privileged: true}":          true,
		"profiling: {enabled: true}\nsecurityContext: {capabilities: {add: null}}": false,
	} {
		s := daemonSet(t, mustRender(t, c, values)).Spec.Template.Spec.Containers[0].SecurityContext
		held := s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
		if held == refused {
			t.Errorf("%s: allowPrivilegeEscalation false: %t", values, held)
		}
	}
}

// The Prometheus Operator drops a monitor whose scrapes may take longer than the time between two,
// and says so in its own log alone.
func TestTimeoutOfAScrape(t *testing.T) {
	c := load(t, folder)
	for _, x := range []struct{ interval, timeout, want, wantNote string }{
		{"5s", "10s", "5s", "5s"}, {"15s", "10s", "10s", ""}, {"10s", "10s", "10s", ""}, {"1m", "90s", "1m", "1m"},
		{"1m30s", "75s", "75s", ""}, {"500ms", "1s", "500ms", "500ms"}, {"2m", "1m30s", "1m30s", ""}, {"1h", "61m", "1h", "1h"},
	} {
		values := fmt.Sprintf("{enabled: true, interval: %s, scrapeTimeout: %s}", x.interval, x.timeout)
		r := mustRender(t, c, "serviceMonitor: "+values+"\npodMonitor: "+values)
		service := one[*monitoring.ServiceMonitor](t, r).Spec.Endpoints[0]
		pod := one[*monitoring.PodMonitor](t, r).Spec.PodMetricsEndpoints[0]
		for what, got := range map[string]monitoring.Duration{"ServiceMonitor": service.ScrapeTimeout, "PodMonitor": pod.ScrapeTimeout} {
			if string(got) != x.want {
				t.Errorf("%s every %s, at most %s: %s, want %s", what, x.interval, x.timeout, got, x.want)
			}
		}
		for _, key := range []string{"serviceMonitor", "podMonitor"} {
			if got := strings.Contains(r.notes, key+".scrapeTimeout is longer than its interval"); got != (x.wantNote != "") {
				t.Errorf("every %s, at most %s: the notes say so of %s: %t", x.interval, x.timeout, key, got)
			}
		}
	}
}

// Scraped by both monitors, every series would be there twice, and every sum would be doubled.
func TestOneMonitor(t *testing.T) {
	c := load(t, folder)
	for values, want := range map[string][2]int{
		"{}":                          {1, 0},
		"podMonitor: {enabled: true}": {0, 1},
		"podMonitor: {enabled: true}\nserviceMonitor: {enabled: true}": {1, 1},
		"serviceMonitor: {enabled: false}":                             {0, 0},
	} {
		r := mustRender(t, c, values)
		got := [2]int{len(every[*monitoring.ServiceMonitor](t, r)), len(every[*monitoring.PodMonitor](t, r))}
		if got != want {
			t.Errorf("%s: %d ServiceMonitors and PodMonitors, want %d", values, got, want)
		}
		if said := strings.Contains(r.notes, "twice"); said != (got == [2]int{1, 1}) {
			t.Errorf("%s: the notes say that series are there twice: %t", values, said)
		}
	}
}

// Names are cut to what a label, the name of a Service and that of a certificate may have.
func TestLongNames(t *testing.T) {
	c := load(t, folder)
	const long = "gpu-metrics-of-the-machine-learning-platform-of-our-company-in-central-europe"
	for _, values := range []string{"fullnameOverride: " + long, "nameOverride: " + long, "fullnameOverride: " + long[:63], "fullnameOverride: " + long[:59]} {
		r := mustRender(t, c, values+"\nprometheusRule: {enabled: true}\ntlsServerConfig: {enabled: true}\nbasicAuth: {users: {ann: x}}")
		check(t, values, r)
		for _, o := range r.objects(t) {
			m, err := meta.Accessor(o.value)
			if err != nil {
				t.Fatal(err)
			}
			for key, value := range m.GetLabels() {
				for _, msg := range validation.IsValidLabelValue(value) {
					t.Errorf("%s: %s %s has the label %s=%s: %s", values, o.kind, o.name, key, value, msg)
				}
			}
		}
		for _, s := range every[*core.Service](t, r) {
			for _, msg := range validation.IsDNS1035Label(s.Name) {
				t.Errorf("%s: Service %s: %s", values, s.Name, msg)
			}
		}
	}
}

// In a values file null takes a default away. What is left renders, or the schema names the key:
// no error is about a pointer in a template.
func TestNullValues(t *testing.T) {
	c := load(t, folder)
	var walk func(path []string, values map[string]any)
	walk = func(path []string, values map[string]any) {
		for _, key := range sortedKeys(values) {
			at := append(path[:len(path):len(path)], key)
			nested := any(nil)
			for i := len(at) - 1; i >= 0; i-- {
				nested = map[string]any{at[i]: nested}
			}
			text, err := yaml.Marshal(nested)
			if err != nil {
				t.Fatal(err)
			}
			r, err := render(c, string(text))
			switch {
			case err == nil:
				r.objects(t)
			case !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "template:"):
				t.Errorf("%s: null: %v", strings.Join(at, "."), err)
			}
			if m, ok := values[key].(map[string]any); ok {
				walk(at, m)
			}
		}
	}
	walk(nil, c.Values)

	// What NVIDIA's chart renders without, this one does.
	for _, key := range []string{"securityContext", "podSecurityContext", "podAnnotations", "podLabels", "resources", "tolerations", "nodeSelector", "affinity", "arguments", "extraEnv", "extraHostVolumes", "extraConfigMapVolumes", "extraVolumeMounts", "imagePullSecrets", "priorityClassName", "rollingUpdate"} {
		if _, err := render(c, key+": null"); err != nil {
			t.Errorf("%s: null: %v", key, err)
		}
	}
}

// A tag of NVIDIA's, as values files pin it, is no tag of this project's image.
func TestNotesOnATagOfTheReference(t *testing.T) {
	c := load(t, folder)
	for values, want := range map[string]bool{
		"image: {tag: 4.6.0-4.8.3-distroless}":                                                        true,
		"image: {tag: 3.3.5-3.4.0-ubuntu22.04}":                                                       true,
		"image: {tag: 4.5.3-4.8.2-ubi9}":                                                              true,
		"image: {repository: nvcr.io/nvidia/k8s/dcgm-exporter, tag: 4.5.3-4.8.2-distroless}":          false, // which has a note of its own
		"image: {tag: v0.1.0}":                                                                        false,
		"image: {tag: v0.1.0-dcgm}":                                                                   false,
		"image: {tag: 4.6.0-4.8.3-distroless, digest: \"sha256:" + strings.Repeat("0", 64) + "\"}":    false,
		"image: {repository: registry.example.com/mirror/dcgm-exporter, tag: 4.6.0-4.8.3-distroless}": true,
	} {
		if got := strings.Contains(mustRender(t, c, values).notes, "is a tag of NVIDIA's image"); got != want {
			t.Errorf("%s: the notes say so: %t", values, got)
		}
	}
}

// Values of older charts of NVIDIA render: a repository without a tag is that of its last chart, and a key that means
// nothing is named.
func TestValuesOfOlderCharts(t *testing.T) {
	c := load(t, folder)
	r := mustRender(t, c, "image: {repository: nvcr.io/nvidia/k8s/dcgm-exporter}\nmapPodsMetrics: true")
	if image := strings.Join(r.docs, "\n---\n"); !strings.Contains(image, "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless") {
		t.Errorf("the image is not that of NVIDIA's chart:\n%s", image)
	}
	if !strings.Contains(r.notes, "mapPodsMetrics has no effect") {
		t.Errorf("the notes do not name mapPodsMetrics:\n%s", r.notes)
	}
}

// A scrape, and "helm test", need a certificate where the exporter demands one.
func TestNotesOnCertificatesOfClients(t *testing.T) {
	c := load(t, folder)
	const demands = "tlsServerConfig: {enabled: true, clientAuthType: RequireAndVerifyClientCert}"
	for values, want := range map[string]bool{
		demands:                            true,
		"tlsServerConfig: {enabled: true}": false,
		demands + "\nserviceMonitor: {enabled: false}": false,
		demands + "\nserviceMonitor: {tlsConfig: {cert: {secret: {name: mine, key: tls.crt}}, keySecret: {name: mine, key: tls.key}}}": false,
	} {
		if got := strings.Contains(mustRender(t, c, values).notes, "serviceMonitor.tlsConfig"); got != want {
			t.Errorf("%s: the notes name serviceMonitor.tlsConfig: %t", values, got)
		}
	}
}

// Manifests mount a ConfigMap over the whole folder of the counters. No mount of the chart's lies in
// it: the folder is read-only, and the runtime could not make the mount's own.
func TestAFolderOverTheCounters(t *testing.T) {
	c := load(t, folder)
	for _, at := range []string{"/etc/dcgm-exporter", "/etc/dcgm-exporter/", "/etc"} {
		r := mustRender(t, c, `
arguments: ["-f", "/etc/dcgm-exporter/default-counters.csv"]
extraConfigMapVolumes: [{name: mine, configMap: {name: dcgm-metrics}}]
extraVolumeMounts: [{name: mine, mountPath: `+at+`}]
`)
		container := daemonSet(t, r).Spec.Template.Spec.Containers[0]
		for _, m := range container.VolumeMounts {
			if m.Name != "mine" && strings.HasPrefix(m.MountPath, "/etc/") {
				t.Errorf("%s is mounted in %s", m.MountPath, at)
			}
		}
		if d := cmp.Diff([]string{"-f", "/etc/dcgm-exporter/default-counters.csv"}, container.Args); d != "" {
			t.Errorf("%s: arguments (-want +got):\n%s", at, d)
		}
		for _, e := range container.Env {
			if strings.Contains(e.Value, "/etc/dcgm-exporter/") {
				t.Errorf("%s: %s=%s", at, e.Name, e.Value)
			}
		}
		if !strings.Contains(r.notes, "customMetrics has no effect") || strings.Contains(r.notes, "does not refresh") {
			t.Errorf("%s: the notes:\n%s", at, r.notes)
		}
	}
	r := mustRender(t, c, "extraHostVolumes: [{name: mine, hostPath: /opt}]\nextraVolumeMounts: [{name: mine, mountPath: /etc/dcgm-exporter/more}]")
	if !slices.ContainsFunc(daemonSet(t, r).Spec.Template.Spec.Containers[0].VolumeMounts, func(m core.VolumeMount) bool { return m.Name == "counters" }) {
		t.Error("a mount beside the counters takes them away")
	}
}

// What chooses the nodes may be an affinity.
func TestNotesOnNodes(t *testing.T) {
	c := load(t, folder)
	for values, want := range map[string]bool{
		"{}":                            true,
		"nodeSelector: {gpu: \"true\"}": false,
		"gpuOperator: {client: true}":   false,
		"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: Exists}]}]}}}": false,
		"affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: []}}":                                                                     true,
	} {
		if got := strings.Contains(mustRender(t, c, values).notes, "It runs on every node"); got != want {
			t.Errorf("%s: the notes say so: %t", values, got)
		}
	}
}

// A counters file and a configuration are in the ConfigMap as they are written, also with an indented
// first line, which a block of YAML else takes for its indentation.
func TestFilesAsTheyAre(t *testing.T) {
	c := load(t, folder)
	for _, content := range []string{
		"  DCGM_FI_DEV_GPU_TEMP, gauge, Temperature (in C).\nDCGM_FI_DEV_SM_CLOCK, gauge, SM clock (in MHz).\n",
		"\n\n\t# {{ .Values }} %s \"a\": 'b' # c\n---\nDCGM_FI_DEV_GPU_TEMP, gauge, \"a, b\"  \n- é\n",
		"DCGM_FI_DEV_GPU_TEMP, gauge, Temperature (in C).", // without the last newline
	} {
		text, err := yaml.Marshal(map[string]any{"customMetrics": content, "config": map[string]any{"enabled": true, "data": content}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := render(c, string(text))
		if err != nil {
			t.Errorf("%q: %v", content, err)
			continue
		}
		want := strings.TrimSuffix(content, "\n") + "\n"
		for _, m := range every[*core.ConfigMap](t, r) {
			for key, got := range m.Data {
				if got != want {
					t.Errorf("%s has under %s (-want +got):\n%s", m.Name, key, cmp.Diff(want, got))
				}
			}
		}
	}
}

// What bcrypt does not take, the function of Helm returns as a text in the place of a hash.
func TestPasswordsThatCannotBeHashed(t *testing.T) {
	c := load(t, folder)
	for values, want := range map[string]string{
		`basicAuth: {users: {ann: "` + strings.Repeat("x", 73) + `"}}`: "basicAuth.users.ann",
		`basicAuth: {users: {"a:b": x}}`:                               "basicAuth.users.a:b",
	} {
		_, err := render(c, values)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "at most 72 bytes") || strings.Contains(err.Error(), "xxxx") {
			t.Errorf("%s: %v", values, err)
		}
	}
	if _, err := render(c, `basicAuth: {users: {ann: "`+strings.Repeat("x", 72)+`", "zoe b": "a'\"$:"}}`); err != nil {
		t.Error(err)
	}
}

// YAML and Helm make a floating-point number of digits without quotes: what is a text is written with
// all of its digits, and one that has lost some is an error.
func TestDigitsWithoutQuotes(t *testing.T) {
	c := load(t, folder)
	quoted := `
image: {tag: "20260101"}
arguments: ["-c", "1000000", "--debug"]
exporter: {collectInterval: "1000000"}
debugDump: {enabled: true, retention: "1000000"}
priorityClassQuota: {create: true, pods: "1000000"}
basicAuth: {users: {ann: "12345678"}}
`
	salted := cmp.Transformer("salted", func(doc string) string { return regexp.MustCompile(`(ann: ).*`).ReplaceAllString(doc, "$1") })
	bare := strings.ReplaceAll(quoted, `"`, "")
	got := mustRender(t, c, bare).docs
	if d := cmp.Diff(mustRender(t, c, quoted).docs, got, cmp.FilterPath(func(p cmp.Path) bool { return len(p) == 2 }, salted)); d != "" {
		t.Errorf("(-with quotes +without):\n%s", d)
	}
	for values, want := range map[string]string{
		"image: {tag: 4.8}":                                   `dcgm-exporter:4.8"`,
		"image: {tag: 1.10}":                                  `dcgm-exporter:1.1"`, // so YAML has it
		"basicAuth: {users: {ann: 12345678}}":                 `password: "12345678"`,
		"basicAuth: {users: {ann: true}}":                     `password: "true"`,
		"podLabels: {a: 1.5, b: 3, c: -7}":                    "a: \"1.5\"\n        b: \"3\"\n        c: \"-7\"",
		"basicAuth: {users: {ann: \"12345678901234567890\"}}": `password: "12345678901234567890"`,
	} {
		if all := strings.Join(mustRender(t, c, values).docs, "\n---\n"); !strings.Contains(all, want) {
			t.Errorf("%s: no %s", values, want)
		}
	}
	for values, want := range map[string]string{
		"basicAuth: {users: {ann: 12345678901234567890}}": "basicAuth.users.ann", // and not the password
		"podLabels: {a: 12345678901234567890}":            "1.2345678901234567e+19",
	} {
		_, err := render(c, values)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "expected it in quotes") || strings.Contains(values, "basicAuth") && strings.Contains(err.Error(), "1.23") {
			t.Errorf("%s: %v", values, err)
		}
	}
}
