package lint

import (
	"fmt"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// toleration is a toleration of a pod.
type toleration = node.Toleration

// tolerationsOf reads a decoded list of tolerations.
func tolerationsOf(value any) []toleration {
	list, _ := value.([]any)
	var out []toleration
	for _, e := range list {
		m, _ := e.(map[string]any)
		text := func(k string) string { return model.ScalarText(m[k]) }
		out = append(out, toleration{Key: text("key"), Operator: text("operator"), Value: text("value"), Effect: text("effect")})
	}
	return out
}

// operandTolerations is the key of what the operands tolerate.
const operandTolerations = "daemonsets.tolerations"

// tolerations compares the taints of the GPU nodes with what the operands and the discovery's worker tolerate.
func (r *run) tolerations(in *installation) {
	for _, p := range []struct{ path, what string }{
		{operandTolerations, "the operands"},
		{"node-feature-discovery.worker.tolerations", "Node Feature Discovery's worker, so that the operator never learns of the GPU"},
	} {
		value, known := in.Value(p.path)
		if !known || p.path == "node-feature-discovery.worker.tolerations" && in.Is("nfd.enabled", false) {
			continue
		}
		have := tolerationsOf(value)
		if p.path == operandTolerations {
			have = node.OperandTolerations(have)
		}
		seen := map[node.Taint]bool{}
		for _, t := range r.taints {
			if seen[t] || node.Covered(have, t) {
				continue
			}
			seen[t] = true
			f := report.Row{
				ID: "taint", State: report.Failed, Subject: p.path, File: r.name,
				Reason: fmt.Sprintf("the taint %s of the GPU nodes is not tolerated: it keeps away %s (DaemonSets show DESIRED 0)", t, p.what),
				Fix:    "add {key: " + t.Key + ", operator: Exists, effect: " + t.Effect + "} to the chart's default", Source: sourceValues,
			}
			if s := in.Explicit(p.path); s != nil {
				f.File, f.Line, f.Column = s.File, s.Line, s.Column
			}
			r.findings = append(r.findings, f)
		}
	}
}

// podTolerations reads the tolerations of a pod's spec.
func podTolerations(spec *yaml.Node) []toleration {
	var out []toleration
	for _, n := range fields.Items(fields.Get(spec, "tolerations")) {
		out = append(out, toleration{Key: fields.Text(n, "key"), Operator: fields.Text(n, "operator"), Value: fields.Text(n, "value"), Effect: fields.Text(n, "effect")})
	}
	return out
}
