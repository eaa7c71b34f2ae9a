package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// relabeled formats relabelings: "TARGET<SOURCE" for a target label with its sources, and "-REGEX" for an action
// without a target, such as labeldrop.
func relabeled(configs []monitoring.RelabelConfig) string {
	var steps []string
	for _, c := range configs {
		step := c.TargetLabel
		for _, source := range c.SourceLabels {
			step += "<" + string(source)
		}
		if c.Action != "" && step == "" {
			step = "-" + c.Regex
		}
		steps = append(steps, step)
	}
	return strings.Join(steps, " ")
}

// TestMonitorsRelabel checks the relabelings of both monitors. Every target has a node label, even if the values add
// relabelings. With honorLabels, the target's labels namespace, pod and container are dropped. If they were kept,
// series of idle GPUs would have the labels of the exporter's pod.
func TestMonitorsRelabel(t *testing.T) {
	const node, honored = "node<__meta_kubernetes_pod_node_name", " exporter_pod<pod"
	c := load(t)
	for _, tt := range []struct{ values, want string }{
		{"", node},
		{"relabelings: null", node},
		{"honorLabels: true", node + honored + " -pod|namespace|container"},
		{"relabelings: [{sourceLabels: [__address__], targetLabel: ip}]", node + " ip<__address__"},
		{"honorLabels: true\n  relabelings: [{sourceLabels: [__address__], targetLabel: ip}]",
			node + honored + " ip<__address__ -pod|namespace|container"},
		{"honorLabels: true\n  relabelings: [{action: labeldrop, regex: pod|container|service}]",
			node + " -pod|container|service"},
		{"relabelings: [{sourceLabels: [__meta_kubernetes_node_label_name], targetLabel: node}]",
			"node<__meta_kubernetes_node_label_name"},
	} {
		service := only[*monitoring.ServiceMonitor](t,
			mustRender(t, c, "serviceMonitor:\n  enabled: true\n  "+tt.values))
		pod := only[*monitoring.PodMonitor](t, mustRender(t, c, "podMonitor:\n  enabled: true\n  "+tt.values))
		if d := cmp.Diff(tt.want, relabeled(service.Spec.Endpoints[0].RelabelConfigs)); d != "" {
			t.Errorf("ServiceMonitor with %q (-want +got):\n%s", tt.values, d)
		}
		if d := cmp.Diff(tt.want, relabeled(pod.Spec.PodMetricsEndpoints[0].RelabelConfigs)); d != "" {
			t.Errorf("PodMonitor with %q (-want +got):\n%s", tt.values, d)
		}
	}
}
