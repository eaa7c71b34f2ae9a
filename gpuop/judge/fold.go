package judge

import (
	"fmt"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// foldChain merges findings about a node's operands. The finding about the first broken component is moved to the
// front and says which component waits, or how many. The findings about them are removed.
func foldChain(operands []operand, findings []check.Finding) []check.Finding {
	root := firstBroken(operands)
	if root == nil {
		return findings
	}
	var waiting []string
	for _, o := range operands {
		if o.component != root.component && o.Severity == check.Waiting {
			waiting = append(waiting, o.Subject)
		}
	}
	var first check.Finding
	findings = slices.DeleteFunc(findings, func(f check.Finding) bool {
		isRoot := f.Check == operandState && f.Subject == root.Subject
		if isRoot {
			first = f
		}
		return isRoot || f.Check == operandState && slices.Contains(waiting, f.Subject)
	})
	switch n := len(waiting); n {
	case 0:
	case 1:
		first.Reason += "; " + waiting[0] + " waits for it"
	default:
		first.Reason += fmt.Sprintf("; %d DaemonSets wait for it", n)
	}
	return slices.Insert(findings, 0, first)
}

// withoutExplained removes waiting findings about a ClusterPolicy if anything else, except a GPUCluster, is waiting or
// has an error.
func withoutExplained(findings []check.Finding) []check.Finding {
	isExplained := slices.ContainsFunc(findings, func(f check.Finding) bool {
		return (f.Severity == check.Error || f.Severity == check.Waiting) && f.Check != clusterPolicy &&
			f.Check != gpuCluster
	})
	return slices.DeleteFunc(findings, func(f check.Finding) bool {
		return isExplained && f.Severity == check.Waiting && f.Check == clusterPolicy
	})
}
