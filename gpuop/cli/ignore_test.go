package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// Findings are ignored with --ignore ID, with --ignore ID:SUBJECT, and with a comment in the file.
func TestIgnoredFindings(t *testing.T) {
	const values = "driver:\n  enabled: flase\ntoolkit:\n  enbaled: true\n"
	for _, c := range []struct {
		values, ignore, summary string
		code                    int
	}{
		{values, "unknown-key", "1 error, 1 ignored", 1},
		{values, "unknown-key:toolkit.enbaled,wrong-value", "no findings, 2 ignored", 0},
		{values, "unknown-key:driver", "2 errors", 1},
		{strings.Replace(values, "flase", "flase # gpuop:ignore wrong-value", 1), "", "1 error, 1 ignored", 1},
		{strings.Replace(values, "  enbaled", "  # gpuop:ignore unknown-key\n  enbaled", 1), "", "1 error, 1 ignored", 1},
		{strings.Replace(values, "flase", "flase # gpuop:ignore unknown-key", 1), "", "2 errors", 1},
		{"driver: {enabled: flase}\n# gpuop:ignore wrong-value\ntoolkit: {enabled: true}\n", "", "1 error", 1},
	} {
		args := []string{"lint", "-", "--version", "v26.7.0", "-o", "json"}
		for i := range strings.FieldsFuncSeq(c.ignore, func(r rune) bool { return r == ',' }) {
			args = append(args, "--ignore", i)
		}
		code, out, errOut := call(c.values, args...)
		var result struct{ Summary string }
		if err := json.Unmarshal([]byte(out), &result); err != nil || code != c.code || result.Summary != c.summary {
			t.Errorf("%q --ignore %q: exit %d, error %v, summary %q; want exit %d and summary %q\n%s", c.values, c.ignore, code, err, result.Summary, c.code, c.summary, errOut)
		}
	}
	const script = "# gpuop:ignore unknown-key\nhelm upgrade gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set drver.enabled=false\n"
	if code, out, _ := call(script, "lint", "-"); code != 0 || !strings.Contains(out, "1 ignored") {
		t.Errorf("script with a comment: exit %d, want 0 and 1 ignored\n%s", code, out)
	}
}
