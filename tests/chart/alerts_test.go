package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// rulesOf returns the groups of all PrometheusRules of a rendering, by name.
func rulesOf(t *testing.T, r *rendering) map[string]monitoring.RuleGroup {
	t.Helper()
	groups := map[string]monitoring.RuleGroup{}
	for _, rule := range every[*monitoring.PrometheusRule](t, r) {
		for _, g := range rule.Spec.Groups {
			if len(g.Rules) == 0 {
				t.Errorf("the group %s is empty", g.Name)
			}
			groups[g.Name] = g
		}
	}
	return groups
}

// alertsOf returns the alerts of a rendering, by name.
func alertsOf(t *testing.T, r *rendering) map[string]monitoring.Rule {
	t.Helper()
	alerts := map[string]monitoring.Rule{}
	for _, g := range rulesOf(t, r) {
		for _, rule := range g.Rules {
			if rule.Alert != "" {
				alerts[rule.Alert] = rule
			}
		}
	}
	return alerts
}

// TestDefaultRulesAreTheShippedOnes checks that prometheusRule.enabled renders the rules in deployment/rules unchanged.
func TestDefaultRulesAreTheShippedOnes(t *testing.T) {
	got := rulesOf(t, mustRender(t, load(t), "prometheusRule: {enabled: true}"))
	want := map[string]monitoring.RuleGroup{}
	for _, file := range folder.Files(t, root, "deployment", "rules", "*.yml") {
		var spec monitoring.PrometheusRuleSpec
		if err := yaml.UnmarshalStrict([]byte(folder.Read(t, file)), &spec); err != nil {
			t.Fatal(file, err)
		}
		for _, g := range spec.Groups {
			want[g.Name] = g
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-deployment/rules +chart):\n%s", d)
	}
}

// TestAlertValues sets values below "alerts". The rendered alerts must be the shipped ones with exactly these changes.
// Invalid values must be errors.
func TestAlertValues(t *testing.T) {
	c := load(t)
	shipped := alertsOf(t, mustRender(t, c, "prometheusRule: {enabled: true}"))
	changed := alertsOf(t, mustRender(t, c, `
prometheusRule: {enabled: true}
alerts:
  disabled: [GPUAllocatedIdle, GPUStraggler]
  additionalRuleLabels: {team: gpu, tier: 1}
  runbookURL: https://wiki.example/gpus
  thresholds: {GPUHot: 80, GPUFrameBufferFull: 0.00001, GPUMemoryHot: null}
`))
	for _, name := range []string{"GPUAllocatedIdle", "GPUStraggler"} {
		if _, ok := changed[name]; ok {
			t.Errorf("%s is disabled but was rendered, want it absent", name)
		}
		delete(shipped, name)
	}
	for name, want := range shipped {
		want.Labels["team"], want.Labels["tier"] = "gpu", "1"
		want.Annotations["runbook_url"] = "https://wiki.example/gpus#" + strings.ToLower(name)
		switch name {
		case "GPUHot":
			want.Expr.StrVal = strings.TrimSuffix(want.Expr.StrVal, "87") + "80"
		case "GPUFrameBufferFull":
			want.Expr.StrVal = strings.TrimSuffix(want.Expr.StrVal, "0.02") + "1e-05"
		}
		shipped[name] = want
	}
	if d := cmp.Diff(shipped, changed); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	everyIdle := "prometheusRule: {enabled: true}\nalerts: {disabled: [GPUAllocatedIdle]}"
	if g, ok := rulesOf(t, mustRender(t, c, everyIdle))["gpu-use-hourly"]; !ok || len(g.Rules) == 0 {
		t.Error("GPUAllocatedIdle is disabled: group gpu-use-hourly has no recording rules, want some")
	}
	for values, want := range map[string]string{
		"alerts: {disabled: [GPUHott]}":                     "alerts.disabled: there is no alert GPUHott",
		"alerts: {threshold: {}}":                           "threshold",
		"alerts: {thresholds: {GPULost: 1}}":                "GPULost",
		"alerts: {thresholds: {GPUFrameBufferFull: 5}}":     "GPUFrameBufferFull",
		"alerts: {thresholds: {GPUHot: warm}}":              "GPUHot",
		"alerts: {additionalRuleLabels: {team: {gpu: ok}}}": "team",
	} {
		if _, err := render(c, "prometheusRule: {enabled: true}\n"+values); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one about %s", values, err, want)
		}
	}
}
