package cli

import (
	"strings"
	"testing"
)

func TestMIGTranscripts(t *testing.T) {
	for name, calls := range map[string][][]string{
		"mig-profiles.txt": {
			{"mig", "profiles"}, {"mig", "profiles", "A100-40GB"}, {"mig", "profiles", "RTX-PRO-6000"}, {"mig", "profiles", "A100"},
		},
		"mig-fit.txt": {
			{"mig", "fit", "--gpu", "H100-80GB", "3g.40gb", "2g.20gb", "1g.10gb=2"},
			{"mig", "fit", "--gpu", "A100-40GB", "3g.20gb=2", "1g.5gb=1"},
			{"mig", "fit", "--gpu", "A100-40GB", "2g.10gb=3", "1g.5gb=1"},
			{"mig", "fit", "--gpu", "A100-80GB", "1g.5gb=7"},
			{"mig", "fit", "--gpu", "RTX-PRO-6000", "1g.24gb+me.all", "1g.24gb-me=3"},
			{"mig", "fit", "--gpu", "A30", "7g.80gb"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for _, c := range calls {
				b.WriteString(transcript("", c...))
			}
			golden(t, name, b.String())
		})
	}
}

func TestMIGAsksForWhatIsMissing(t *testing.T) {
	for _, tc := range []struct {
		args []string
		hint string
	}{
		{[]string{"mig", "fit", "1g.5gb"}, `"gpu" not set`},
		{[]string{"mig", "fit", "--gpu", "A100-40GB"}, "no profile given"},
		{[]string{"mig", "fit", "--gpu", "A100-40GB", "1c.3g.20gb"}, "expected a MIG profile"},
		{[]string{"mig", "fit", "--gpu", "H10O-80GB", "1g.10gb"}, "write H100-80GB"},
	} {
		code, out, errOut := call("", tc.args...)
		if code != exitBadInput || out != "" || !strings.Contains(errOut, tc.hint) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want exit 2 and one line with %q", tc.args, code, out, errOut, tc.hint)
		}
	}
}
