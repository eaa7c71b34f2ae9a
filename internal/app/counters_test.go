package app_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

// Watch groups may use the names of either vocabulary, whichever is served.
func TestPatternsOfEitherVocabulary(t *testing.T) {
	const yaml = "version: 1\ncollection:\n  watchGroups:\n  - {name: slow, interval: 5m, fields: [%s]}\n"
	for _, temperature := range []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CEL*"} {
		for _, vocabulary := range []string{"classic", "current", "both"} {
			file := func(string) ([]byte, error) { return fmt.Appendf(nil, yaml, temperature), nil }
			noEnv := func(string) (string, bool) { return "", false }
			cfg, err := config.Parse([]string{"--config-file=c.yaml", "--vocabulary=" + vocabulary}, noEnv, file)
			if err != nil {
				t.Fatal(err)
			}
			set, err := app.ParseCounters(cfg, "default", etc.Default())
			if err != nil {
				t.Fatal(err)
			}
			plan, err := set.Plan(cfg, cfg.Collection.Interval)
			if err != nil {
				t.Errorf("%s with vocabulary %s: %v", temperature, vocabulary, err)
				continue
			}
			for i, f := range plan.Fields {
				if got := plan.IntervalOf(i); f.ID == 150 && got != 5*time.Minute {
					t.Errorf("%s, vocabulary %s: interval of %s = %v, want 5m", temperature, vocabulary, f.Name, got)
				}
			}
		}
	}
}
