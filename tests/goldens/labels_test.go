package goldens

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// TestLabelNames checks that each label on series of owned GPUs is reserved. A pod label with the same name could
// otherwise replace it.
func TestLabelNames(t *testing.T) {
	pages, err := filepath.Glob("testdata/pages/*.txt")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no golden pages found: %v", err)
	}
	name := regexp.MustCompile(`[{,]([a-zA-Z_][a-zA-Z0-9_]*)="`)
	seen := map[string]bool{}
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if strings.HasPrefix(line, "#") || !strings.Contains(line, `pod="`) && !strings.Contains(line, `pod_name="`) {
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
	for _, f := range catalog.Families(catalog.Requested) {
		for _, label := range f.Labels {
			if !catalog.IsOwnLabel(label) {
				t.Errorf("label %s of %s is not reserved: a pod label could replace it", label, f.Name)
			}
		}
	}
}
