package app_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// planned returns the names of the counters that are planned for a YAML file beside a counters
// file, and the error.
func planned(t *testing.T, yaml string, args ...string) ([]string, *gpu.Plan, string) {
	t.Helper()
	file := func(string) ([]byte, error) { return []byte(yaml), nil }
	cfg, err := config.Parse(append(args, "--config-file=c.yaml"), func(string) (string, bool) { return "", false }, file)
	if err != nil {
		t.Fatal(err)
	}
	set, err := app.ParseCounters(cfg, "a.csv", []byte("DCGM_FI_DEV_POWER_USAGE, gauge, P\nDCGM_FI_DEV_POWER_VIOLATION, counter, V\n"))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := set.Plan(cfg, cfg.Collection.Interval)
	if err != nil {
		return nil, nil, err.Error()
	}
	var names []string
	for _, c := range plan.Counters {
		names = append(names, c.Name)
	}
	return names, plan, ""
}

func TestAggregatesOfTheFile(t *testing.T) {
	const head = "version: 1\ncollection:\n  aggregate:\n    interval: 200ms\n    fields: "
	power := []string{"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_POWER_USAGE_MIN", "DCGM_FI_DEV_POWER_USAGE_MAX", "DCGM_FI_DEV_POWER_USAGE_MEAN"}
	names, plan, problem := planned(t, head+"[DCGM_FI_DEV_POWER_U*]\n")
	if diff := cmp.Diff(append(power, "DCGM_FI_DEV_POWER_VIOLATION"), names); diff != "" || problem != "" {
		t.Errorf("%s counters (-want +got):\n%s", problem, diff)
	}
	if !plan.Fields[0].Every || plan.Fields[1].Every || plan.IntervalOf(0).String() != "200ms" {
		t.Errorf("fields %+v", plan.Fields)
	}
	for fields, want := range map[string]string{
		"[DCGM_FI_DEV_POWER_*]":             "c.yaml:5: collection.aggregate: DCGM_FI_DEV_POWER_VIOLATION is requested as a counter: expected a gauge",
		"[DCGM_FI_DEV_POWER_USAGE, '*ABC']": "c.yaml:5: collection.aggregate: *ABC matches none of the 2 requested fields",
	} {
		if _, _, problem := planned(t, head+fields+"\n"); problem != want {
			t.Errorf("%s\n got %s\nwant %s", fields, problem, want)
		}
	}
}

// Groups and aggregates are written with the names of either vocabulary, and are good under each.
func TestPatternsOfEitherVocabulary(t *testing.T) {
	const yaml = "version: 1\ncollection:\n  watchGroups:\n  - {name: slow, interval: 5m, fields: [%s]}\n  aggregate: {interval: 200ms, fields: [%s]}\n"
	for _, c := range []struct{ temperature, power string }{
		{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"},
		{"DCGM_FI_DEV_GPU_TEMP_CEL*", "DCGM_FI_DEV_BOARD_POWER_WATTS"},
	} {
		for _, vocabulary := range []string{"classic", "current", "both"} {
			file := func(string) ([]byte, error) { return fmt.Appendf(nil, yaml, c.temperature, c.power), nil }
			cfg, err := config.Parse([]string{"--config-file=c.yaml", "--vocabulary=" + vocabulary}, func(string) (string, bool) { return "", false }, file)
			if err != nil {
				t.Fatal(err)
			}
			set, err := app.ParseCounters(cfg, "default", etc.Default())
			if err != nil {
				t.Fatal(err)
			}
			plan, err := set.Plan(cfg, cfg.Collection.Interval)
			if err != nil {
				t.Errorf("%s under %s: %v", c, vocabulary, err)
				continue
			}
			for i, f := range plan.Fields {
				switch f.ID {
				case 150:
					if got := plan.IntervalOf(i); got != 5*time.Minute {
						t.Errorf("%s under %s: %s every %v", c, vocabulary, f.Name, got)
					}
				case 155:
					if !f.Every {
						t.Errorf("%s under %s: %s is no burst", c, vocabulary, f.Name)
					}
				}
			}
		}
	}
}
