package lint

import (
	"fmt"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// tolerationsOf reads a list of tolerations, as far as it is one.
func tolerationsOf(list *yaml.Node) (out []corev1.Toleration) {
	if list != nil {
		_ = list.Decode(&out)
	}
	return out
}

// operandTolerations is the key of what the operands tolerate.
const operandTolerations = "daemonsets.tolerations"

// tolerations compares the taints of the GPU nodes with what the operands and the discovery's worker tolerate.
func (r *run) tolerations(in *installation, file string) {
	const worker = "node-feature-discovery.worker.tolerations"
	for _, p := range []struct{ path, what string }{
		{operandTolerations, "the operands"},
		{worker, "Node Feature Discovery's worker, so that the operator never learns of the GPU"},
	} {
		value, known := in.Value(p.path)
		if !known || p.path == worker && in.Is("nfd.enabled", false) {
			continue
		}
		var list yaml.Node
		_ = list.Encode(value) // of what was decoded: does not fail
		have := tolerationsOf(&list)
		if p.path == operandTolerations {
			have = node.OperandTolerations(have)
		}
		f := report.Row{ID: "taint", State: report.Failed, Subject: p.path, File: file}
		if s := in.Explicit(p.path); s != nil {
			f.File, f.Line, f.Column = s.File, s.Line, s.Column
		}
		for _, t := range r.taints {
			if !node.Covered(have, t) {
				f.Reason = fmt.Sprintf("the taint %s of the GPU nodes is not tolerated: it keeps away %s (DaemonSets show DESIRED 0)", t.ToString(), p.what)
				f.Fix = "add {key: " + t.Key + ", operator: Exists, effect: " + string(t.Effect) + "} to the chart's default"
				r.add(file, f)
			}
		}
	}
}
