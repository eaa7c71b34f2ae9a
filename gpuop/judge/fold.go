package judge

import (
	"fmt"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// foldChain merges the findings from the given index on that wait for the node's first broken component. It moves the
// finding of that component to the front and appends how many operands wait for it.
func (w *nodeJudge) foldChain(from int) {
	root := w.firstBroken()
	if root == nil {
		return
	}
	var waiting []string
	for _, l := range w.links {
		if !bad(l) {
			continue
		}
		w.broken[l.component] = true
		if l.component != root.component && l.Severity == check.Waiting {
			waiting = append(waiting, l.Subject)
		}
	}
	var first check.Finding
	rows := slices.DeleteFunc(slices.Clone(w.rows[from:]), func(v check.Finding) bool {
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
	w.rows = append(append(w.rows[:from], first), rows...)
}

// foldCluster drops the findings about the cluster that follow from others: the ClusterPolicy is not ready because of an
// operand, and a DaemonSet because of its pods, which the findings of the nodes explain.
func (j *judge) foldCluster() {
	isCause := func(v check.Finding) bool {
		return (v.Severity == check.Error || v.Severity == check.Waiting) && v.Check != clusterPolicy && v.Check != gpuCluster
	}
	explained := slices.ContainsFunc(j.rows, isCause)
	j.rows = slices.DeleteFunc(j.rows, func(v check.Finding) bool {
		return v.Severity == check.Waiting && (v.Check == daemonSet && j.broken[j.waiting[v.Subject]] ||
			v.Check == clusterPolicy && explained)
	})
}
