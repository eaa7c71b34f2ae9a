package goldens

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// TestLabelNames checks that each label of the series with a pod on the golden pages is reserved by the exporter. A pod
// label with the same name could otherwise replace it.
func TestLabelNames(t *testing.T) {
	name := regexp.MustCompile(`[{,]([a-zA-Z_][a-zA-Z0-9_]*)="`)
	seen := map[string]bool{}
	for _, page := range folder.Files(t, "testdata/pages/*.txt") {
		for line := range strings.Lines(folder.Read(t, page)) {
			if strings.HasPrefix(line, "#") || !strings.Contains(line, `pod="`) &&
				!strings.Contains(line, `pod_name="`) {
				continue
			}
			for _, label := range name.FindAllStringSubmatch(line, -1) {
				seen[label[1]] = true
				if !catalog.IsOwnLabel(label[1]) {
					t.Errorf("%s: label %s is not reserved by the exporter: %s", page, label[1], line)
				}
			}
		}
	}
	for _, label := range []string{"gpu", "xid", "err_code", "sharing"} {
		if !seen[label] {
			t.Errorf("no series of an owned GPU has the reserved label %s", label)
		}
	}
}
