package command_test

import (
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
)

func TestFields(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		code int
		want []string // each line's beginning, with single spaces
	}{
		{"words in any order and case", []string{"INSTANT", "power_usage"}, command.OK, []string{
			"NAME ID UNIT TYPE OF CURRENT WHAT",
			"DCGM_FI_DEV_POWER_USAGE_INSTANT 157 watts gauge GPU DCGM_FI_DEV_BOARD_POWER_RAW_WATTS ",
		}},
		{"a name of 4.9", []string{"dcgm_fi_system_driver_version"}, command.OK, []string{
			"NAME ID UNIT TYPE OF CURRENT WHAT",
			"DCGM_FI_DRIVER_VERSION 1 - label node DCGM_FI_SYSTEM_DRIVER_VERSION ",
		}},
		{"a counter", []string{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}, command.OK, []string{
			"NAME ID UNIT TYPE OF CURRENT WHAT",
			"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION 156 mJ counter GPU ",
		}},
		{"no field, but one with a similar name", []string{"DCGM_FI_DEV_GPU_TMP"}, command.Faulty, []string{`no field matches "DCGM_FI_DEV_GPU_TMP"; did you mean DCGM_FI_DEV_GPU_TEMP?`}},
		{"a misspelled word", []string{"temprature"}, command.Faulty, []string{`no field matches "temprature"; did you mean temperature?`}},
		{"a misspelled second word", []string{"memory", "Temprature"}, command.Faulty, []string{`no field matches "memory Temprature"; did you mean memory temperature?`}},
		{"no field and no similar word", []string{"temperature", "of", "the", "moon"}, command.Faulty, []string{`no field matches "temperature of the moon"`}},
		{"flag", []string{"--all"}, command.Unable, []string{"dcgm-exporter fields: unknown flag --all: fields accepts only words"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{}
			if code := command.Run(t.Context(), "fields", w.process(tt.args...)); code != tt.code {
				t.Errorf("exit code = %d, want %d", code, tt.code)
			}
			lines := strings.Split(strings.TrimSpace(w.Out.String()+w.Err.String()), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("lines = %d, want %d; output:\n%s", len(lines), len(tt.want), strings.Join(lines, "\n"))
			}
			for i, line := range lines {
				if line = strings.Join(strings.Fields(line), " "); !strings.HasPrefix(line, tt.want[i]) {
					t.Errorf("line %d is %q, want %q", i, line, tt.want[i])
				}
			}
		})
	}
}

// Every field has a row with all columns.
func TestWholeCatalog(t *testing.T) {
	w := &world{}
	if code := command.Run(t.Context(), "fields", w.process()); code != command.OK {
		t.Fatalf("exit code = %d, want 0", code)
	}
	lines := strings.Split(strings.TrimSpace(w.Out.String()), "\n")
	if want := 1 + len(catalog.Search()); len(lines) != want {
		t.Errorf("lines = %d, want %d", len(lines), want)
	}
	for _, line := range lines {
		if len(strings.Fields(line)) < 7 {
			t.Errorf("line = %q, want at least 7 words", line)
		}
	}
	if !strings.Contains(w.Out.String(), "cannot be exported") {
		t.Error("no line says that a field cannot be exported, want at least one")
	}
}
