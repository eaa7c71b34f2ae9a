package server_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The landing page explains only reasons that the exporter has. Package gpu declares them.
func TestLandingPageExplainsReasons(t *testing.T) {
	script, err := os.ReadFile("landing/page.js")
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?s)const REASONS = \{(.*?)\};`).FindSubmatch(script)
	if table == nil {
		t.Fatal("page.js has no table REASONS")
	}
	explained := regexp.MustCompile(`(\w+): "`).FindAllSubmatch(table[1], -1)
	if len(explained) == 0 {
		t.Fatal("REASONS is empty")
	}
	for _, m := range explained {
		if reason := string(m[1]); !slices.Contains(gpu.Reasons(), reason) {
			t.Errorf("page.js explains %q, which is not one of gpu.Reasons", reason)
		}
	}
}
