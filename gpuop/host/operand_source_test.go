package host

import (
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
)

// The operands' file names equal those in the source of the newest release's validator.
func TestFilesAreTheValidators(t *testing.T) {
	text, err := exec.Command("git", "-C", charts.Source(t), "show", chart.Load().Latest().String()+":cmd/nvidia-validator/main.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want, have []string
	for _, m := range regexp.MustCompile(`(?m)^\t\w+StatusFile += "([\w-]+-ready)"`).FindAllSubmatch(text, -1) {
		want = append(want, string(m[1]))
	}
	for _, o := range operands {
		have = append(have, o.file())
	}
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("file names (-validator +gpuop):\n%s", diff)
	}
}
