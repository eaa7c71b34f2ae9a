package lint

import (
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	words "github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// slipFor returns the name that another looks like a slip for, or "". A name that differs in a
// whole word is one of its own: spark-operator, tigera-operator, npu-operator.
func slipFor(name string, known ...string) string {
	for _, k := range known {
		if words.Distance(name, k, 2) <= 2 && !ownWord(name, k) {
			return k
		}
	}
	return ""
}

// ownWord reports whether names differ in the first word alone, by more than doubled, missing or swapped letters.
func ownWord(name, known string) bool {
	first, rest, _ := strings.Cut(name, "-")
	want, wantRest, _ := strings.Cut(known, "-")
	if rest != wantRest || first == want {
		return false
	}
	return words.Distance(first, want, 1) > 1 || len(first) == len(want) && !sameLetters(first, want)
}

func sameLetters(a, b string) bool {
	for _, c := range a {
		if strings.Count(a, string(c)) != strings.Count(b, string(c)) {
			return false
		}
	}
	return true
}

// nearestLabel returns the node label that another looks like a slip for, or "", by the name behind nvidia.com/.
func nearestLabel(label string) string {
	prefix, name, _ := strings.Cut(label, "/")
	names := make([]string, len(writableLabels))
	for i, l := range writableLabels {
		names[i] = strings.TrimPrefix(l, labelPrefix)
	}
	near := report.Nearest(name, names)
	ours := prefix == "nvidia" || report.Nearest(prefix, []string{strings.TrimSuffix(labelPrefix, "/")}) != ""
	if near == "" || !ours {
		return ""
	}
	return labelPrefix + near
}

const labelPrefix = "nvidia.com/"
