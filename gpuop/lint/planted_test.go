package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
)

// TestPlantedMistakes lints each case in planted.txt. gpuop must report the listed check at the listed line. Cases
// marked "none" are mistakes that gpuop does not find; at most two are allowed.
func TestPlantedMistakes(t *testing.T) {
	data := read(t, "testdata/planted.txt")
	_, text, _ := strings.Cut(string(data), "\n-- ")
	planted := strings.Split(text, "\n-- ")
	missed := 0
	for i, p := range planted {
		head, input, _ := strings.Cut(p, "\n")
		columns := strings.Split(head, " | ")
		if len(columns) != 3 {
			t.Fatalf("%q: columns = %d, want 3: the mistake, the finding and its place", head, len(columns))
		}
		name, version, _ := strings.Cut(columns[0], " ")
		options := lint.Options{Version: version, Files: []lint.Input{{Name: name, Data: []byte(input + "\n"), Script: strings.HasSuffix(name, ".sh")}}}
		var got []string
		for _, f := range judge(t, options).Report.Findings {
			got = append(got, fmt.Sprintf("%s@%d", f.Check.ID, f.Line))
		}
		if why, none := strings.CutPrefix(columns[1], "none: "); none {
			missed++
			if len(got) > 0 {
				t.Errorf("case %d, %s: findings = %v, want none: %s", i+1, columns[2], got, why)
			}
		} else if !slices.Contains(got, columns[1]) {
			t.Errorf("case %d, %s: findings = %v, want %s", i+1, columns[2], got, columns[1])
		}
	}
	if len(planted) < 64 || missed > 2 {
		t.Errorf("planted mistakes = %d, missed = %d; want at least 64 and at most 2 missed", len(planted), missed)
	}
}
