package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// TestValues renders the cases in testdata/cases.yaml.
func TestValues(t *testing.T) {
	var cases []struct {
		Values, Lacks, Refused string
		Has                    []string
	}
	if err := yaml.UnmarshalStrict([]byte(folder.Read(t, "testdata", "cases.yaml")), &cases); err != nil {
		t.Fatal(err)
	}
	c := load(t)
	for _, tt := range cases {
		r, err := render(c, tt.Values)
		if tt.Refused != "" {
			if err == nil || !strings.Contains(err.Error(), tt.Refused) {
				t.Errorf("%s: error %v, want one about %s", tt.Values, err, tt.Refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.Values, err)
			continue
		}
		text := strings.Join(append(r.docs, r.notes), "\n---\n")
		for _, want := range tt.Has {
			if !strings.Contains(text, want) {
				t.Errorf("%s: rendering does not contain %s", tt.Values, want)
			}
		}
		if tt.Lacks != "" && strings.Contains(text, tt.Lacks) {
			t.Errorf("%s: rendering contains %s", tt.Values, tt.Lacks)
		}
	}
}

// TestStringsThatYAMLReadsOtherwise leaves out the quotes of strings such as "true" and "9400", which YAML and --set
// then parse as booleans and numbers. The rendering must be the same as with quotes: the API server rejects other
// types.
func TestStringsThatYAMLReadsOtherwise(t *testing.T) {
	c := load(t)
	for _, meant := range []string{
		`nodeSelector: {nvidia.com/gpu.present: "true", shard: "7"}`,
		`podAnnotations: {prometheus.io/scrape: "true", prometheus.io/port: "9400"}`,
		`daemonSetAnnotations: {revision: "20260101"}`,
		`podLabels: {version: "1.5", canary: "false", negative: "-7"}`,
		`service: {annotations: {prometheus.io/scrape: "true", prometheus.io/port: "9400"}}`,
		`serviceAccount: {annotations: {eks.amazonaws.com/token-expiration: "86400"}}`,
		`serviceMonitor: {additionalLabels: {monitored: "true"}}`,
		`podMonitor: {enabled: true, additionalLabels: {monitored: "true"}}`,
		`prometheusRule: {enabled: true, additionalLabels: {monitored: "true"}}`,
		`dashboards: {enabled: true, labels: {grafana_dashboard: "1"}, annotations: {order: "2"}}`,
		`tolerations: [{key: gpu, value: "true", effect: NoSchedule, tolerationSeconds: 30}]`,
		`extraEnv: [{name: DCGM_EXPORTER_INTERVAL, value: "1000"}]`,
		`extraEnv: [{name: DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE, value: "1000000"}]`,
		`image: {tag: "20260101"}`,
		`arguments: ["-c", "1000000", "--debug"]`,
		`exporter: {collectInterval: "1000000"}`,
		`debugDump: {enabled: true, retention: "1000000"}`,
		`priorityClassQuota: {create: true, pods: "1000000"}`,
	} {
		written := strings.ReplaceAll(meant, `"`, "")
		if d := cmp.Diff(mustRender(t, c, meant).docs, mustRender(t, c, written).docs); d != "" {
			t.Errorf("%s (-with quotes +without):\n%s", written, d)
		}
	}
	null, empty := "nodeSelector: {node-role.kubernetes.io/control-plane: null}",
		`nodeSelector: {node-role.kubernetes.io/control-plane: ""}`
	if d := cmp.Diff(mustRender(t, c, empty).docs, mustRender(t, c, null).docs); d != "" {
		t.Errorf("(-empty +null):\n%s", d)
	}
}

// eachKey calls visit with the path of each key in values. It skips the keys below one for which visit returns false.
func eachKey(values map[string]any, visit func(at []string) bool, path ...string) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		at := append(path[:len(path):len(path)], key)
		if m, ok := values[key].(map[string]any); visit(at) && ok {
			eachKey(m, visit, at...)
		}
	}
}

// TestNullValues sets each value to null, which removes its default. The chart must render without the value, or its
// schema must name the key in an error. A template must not fail with a nil pointer.
func TestNullValues(t *testing.T) {
	c := load(t)
	eachKey(c.Values, func(at []string) bool {
		nested := map[string]any{}
		if err := unstructured.SetNestedField(nested, nil, at...); err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(nested)
		if err != nil {
			t.Fatal(err)
		}
		r, err := render(c, string(text))
		switch {
		case err == nil:
			r.objects(t)
		case !strings.Contains(err.Error(), at[len(at)-1]) || strings.Contains(err.Error(), "template:"):
			t.Errorf("%s: null: error %v, want one from the schema that names the key", strings.Join(at, "."), err)
		}
		return true
	})

	// NVIDIA's chart renders without these keys, so this chart must too
	for _, key := range []string{"securityContext", "podSecurityContext", "podAnnotations", "podLabels", "resources",
		"tolerations", "nodeSelector", "affinity", "arguments", "extraEnv", "extraHostVolumes", "extraConfigMapVolumes",
		"extraVolumeMounts", "imagePullSecrets", "priorityClassName", "rollingUpdate"} {
		if _, err := render(c, key+": null"); err != nil {
			t.Errorf("%s: null: error %v, want none", key, err)
		}
	}
}

// TestReusedValues renders the chart once without each of its default values, and once without all of them. This
// happens with "helm upgrade --reuse-values": values of NVIDIA's chart lack whole sections, and those of older versions
// lack single keys. The templates must use the chart's defaults for keys that they need.
func TestReusedValues(t *testing.T) {
	want := mustRender(t, load(t), "").docs
	optional := []string{"affinity", "arguments", "nodeSelector", "podSecurityContext", "priorityClassName",
		"resources", "rollingUpdate", "securityContext", "tolerations"}
	eachKey(load(t).Values, func(at []string) bool {
		c := load(t)
		unstructured.RemoveNestedField(c.Values, at...)
		r, err := render(c, "")
		if err != nil {
			t.Errorf("without %s: %v", strings.Join(at, "."), err)
			return false
		}
		r.objects(t)
		if slices.Contains(optional, at[0]) {
			return false
		}
		if d := cmp.Diff(want, r.docs); d != "" {
			t.Errorf("without %s (-defaults +got):\n%s", strings.Join(at, "."), d)
		}
		return true
	})

	c := load(t)
	c.Values = nil
	if set := daemonSet(t, mustRender(t, c, "")); !strings.HasSuffix(set.Spec.Template.Spec.Containers[0].Image,
		"/dcgm-exporter:v0.1.0") {
		t.Errorf("without values: image = %s, want the tag v0.1.0", set.Spec.Template.Spec.Containers[0].Image)
	}
}

// TestFilesAsTheyAre checks that counters files and configurations are in ConfigMaps exactly as written. Only a missing
// last newline is added. A YAML block scalar would lose the indentation of the first line.
func TestFilesAsTheyAre(t *testing.T) {
	c := load(t)
	for _, content := range []string{
		"  DCGM_FI_DEV_GPU_TEMP, gauge, Temperature (in C).\nDCGM_FI_DEV_SM_CLOCK, gauge, SM clock (in MHz).\n",
		"\n\n\t# {{ .Values }} %s \"a\": 'b' # c\n---\nDCGM_FI_DEV_GPU_TEMP, gauge, \"a, b\"  \n- é\n",
		"DCGM_FI_DEV_GPU_TEMP, gauge, Temperature (in C).", // without the last newline
	} {
		text, err := yaml.Marshal(map[string]any{"customMetrics": content,
			"config": map[string]any{"enabled": true, "data": content}})
		if err != nil {
			t.Fatal(err)
		}
		want := strings.TrimSuffix(content, "\n") + "\n"
		for _, m := range every[*core.ConfigMap](t, mustRender(t, c, string(text))) {
			for key, got := range m.Data {
				if got != want {
					t.Errorf("%s: content of %s (-want +got):\n%s", m.Name, key, cmp.Diff(want, got))
				}
			}
		}
	}
}
