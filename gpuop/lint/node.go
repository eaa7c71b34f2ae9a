package lint

import (
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

const sourceLabels = "gpu-operator controllers/state_manager.go"

// node judges a Node that a file has from a line on.
func (r *run) node(n *node.Node, file string, shift int) {
	at := func(line int) int {
		if line > 0 {
			line += shift
		}
		return line
	}
	if config, has := n.Labels[sharing.ConfigLabel]; has {
		r.uses = append(r.uses, configUse{config: config, label: true, at: report.Row{File: file, Line: at(n.Lines[sharing.ConfigLabel]), Subject: sharing.ConfigLabel + "=" + config}})
	}
	const upgrade = "nvidia.com/gpu-driver-upgrade-state"
	if n.Labels[upgrade] == "upgrade-failed" {
		r.findings = append(r.findings, report.Row{ID: "node-upgrade-failed", State: report.Failed, File: file, Line: at(n.Lines[upgrade]), Subject: upgrade,
			Reason: "the driver upgrade of this node failed", Fix: "read the driver pod's logs, then delete the pod", Source: "k8s-operator-libs pkg/upgrade"})
	}
	for _, f := range n.Check() {
		f.File, f.Line = file, at(n.Lines[f.Subject])
		if f.ID == node.RuleNoResource {
			f.Line = at(n.CapacityLine)
		}
		r.findings = append(r.findings, f)
	}
}
