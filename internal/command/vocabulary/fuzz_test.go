package vocabulary_test

import (
	"encoding/json"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/commandtest"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/vocabulary"
)

// FuzzRewrite holds that what an expression is rewritten to parses, and has nothing left to
// rewrite.
func FuzzRewrite(f *testing.F) {
	for _, shape := range shapes() {
		f.Add(shape)
	}
	for _, expr := range []string{
		`sum by ($by) (DCGM_FI_DEV_SM_CLOCK{Hostname=~"[[host]]"}) ^ 2`, `rate(DCGM_FI_DEV_FB_USED[${w}m] offset $back) * $factor`,
		`$agg by (Hostname) (topk($n, DCGM_FI_DEV_GPU_UTIL @ $t))`, `{__name__=~"DCGM_FI_DEV_GPU_TEMP|up",'Hostname'="a"}`,
		`label_join(DCGM_FI_DEV_GPU_TEMP, "x", "-", "Hostname", "DCGM_FI_DRIVER_VERSION") # end`, `DCGM_FI_DEV_${x}_TEMP / $y`,
	} {
		f.Add(expr)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		rewritten, ok := rewrite(t, expr)
		if !ok {
			return
		}
		again, ok := rewrite(t, rewritten)
		if !ok {
			t.Fatalf("%q becomes %q, which cannot be read", expr, rewritten)
		}
		if again != rewritten {
			t.Fatalf("%q becomes %q, which becomes %q", expr, rewritten, again)
		}
	})
}

// rewrite returns the rewritten expression, or the same one, and whether it could be read.
func rewrite(t *testing.T, expr string) (string, bool) {
	t.Helper()
	w := &commandtest.World{Files: map[string]string{"rules.json": rule(expr)}}
	if code := (vocabulary.Command{Process: w.Process("diff", "--format=json", "--to=current", "rules.json")}).Run(); code == command.Unable {
		return "", false
	}
	var list []vocabulary.Finding
	if err := json.Unmarshal(w.Out.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	for _, found := range list {
		if found.What == "expression" && found.New != "" {
			return found.New, true
		}
	}
	return expr, true
}
