package judge

import (
	"fmt"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// foldChain merges findings about a node's operands. The finding about the first broken component is moved to the
// front. Findings about other components that wait are removed. The first finding names the component that waits, or
// says how many wait.
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
		if f.Check == operandState && f.Subject == root.Subject {
			first = f
			return true
		}
		return f.Check == operandState && slices.Contains(waiting, f.Subject)
	})
	switch n := len(waiting); {
	case n == 1:
		first.Reason += "; " + waiting[0] + " waits for it"
	case n > 1:
		first.Reason += fmt.Sprintf("; %d DaemonSets wait for it", n)
	}
	return slices.Insert(findings, 0, first)
}

// withoutExplained removes waiting findings about a ClusterPolicy if anything else, except a GPUCluster, is waiting or
// has an error.
func withoutExplained(findings []check.Finding) []check.Finding {
	isCause := func(f check.Finding) bool {
		unsettled := f.Severity == check.Error || f.Severity == check.Waiting
		return unsettled && f.Check != clusterPolicy && f.Check != gpuCluster
	}
	if !slices.ContainsFunc(findings, isCause) {
		return findings
	}
	return slices.DeleteFunc(findings, func(f check.Finding) bool {
		return f.Severity == check.Waiting && f.Check == clusterPolicy
	})
}
