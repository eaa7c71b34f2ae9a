package judge

import (
	"fmt"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// foldChain merges findings about the node's operands, beginning at index from. The finding about the first broken
// component is moved to the front. Findings about other components that wait are removed. The first finding names the
// component that waits, or says how many wait.
func (w *nodeJudge) foldChain(from int) {
	root := w.firstBroken()
	if root == nil {
		return
	}
	var waiting []string
	for _, l := range w.operands {
		if !isBroken(l) {
			continue
		}
		w.broken[l.component] = true
		if l.component != root.component && l.Severity == check.Waiting {
			waiting = append(waiting, l.Subject)
		}
	}
	var first check.Finding
	findings := slices.DeleteFunc(slices.Clone(w.findings[from:]), func(v check.Finding) bool {
		if v.Check != operandState {
			return false
		}
		if v.Subject == root.Subject {
			first = v
			return true
		}
		return slices.Contains(waiting, v.Subject)
	})
	switch n := len(waiting); {
	case n == 1:
		first.Reason += "; " + waiting[0] + " waits for it"
	case n > 1:
		first.Reason += fmt.Sprintf("; %d DaemonSets wait for it", n)
	}
	w.findings = append(append(w.findings[:from], first), findings...)
}

// foldCluster removes waiting findings about the cluster that other findings already explain. A ClusterPolicy finding
// is removed if anything else, except a GPUCluster, is waiting or has an error. A DaemonSet finding is removed if its
// component is not ready on some node, because that node has a finding about it.
func (j *judge) foldCluster() {
	isCause := func(v check.Finding) bool {
		return (v.Severity == check.Error || v.Severity == check.Waiting) && v.Check != clusterPolicy && v.Check != gpuCluster
	}
	explained := slices.ContainsFunc(j.findings, isCause)
	j.findings = slices.DeleteFunc(j.findings, func(v check.Finding) bool {
		return v.Severity == check.Waiting && (v.Check == daemonSet && j.broken[j.waiting[v.Subject]] ||
			v.Check == clusterPolicy && explained)
	})
}
