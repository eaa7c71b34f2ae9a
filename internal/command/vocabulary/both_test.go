package vocabulary_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
)

// What queries both names already is left as it is; what only resembles it is not.
func TestBothNamesAreLeft(t *testing.T) {
	for _, tt := range []struct{ old, want string }{
		{`DCGM_FI_DEV_GPU_TEMP or DCGM_FI_DEV_GPU_TEMP_CELSIUS`, ""},
		{`DCGM_FI_DEV_GPU_TEMP_CELSIUS or (DCGM_FI_DEV_GPU_TEMP)`, ""},
		{`max by (gpu) (DCGM_FI_DEV_FB_USED{gpu=~"$gpu"} * 1048576 or DCGM_FI_DEV_FB_USED_BYTES{gpu=~"$gpu"}) > 5`, ""},
		{`max(rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m])) or max(rate(DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL[5m])) * 1000`, ""},
		{`sum by (Hostname) (DCGM_FI_DEV_GPU_TEMP{Hostname="a"}) or sum by (hostname) (DCGM_FI_DEV_GPU_TEMP_CELSIUS{hostname="a"})`, ""},
		{`DCGM_FI_DEV_GPU_TEMP or up or DCGM_FI_DEV_GPU_TEMP_CELSIUS`, ""},
		{`max by (hostname, Hostname) (DCGM_FI_DEV_GPU_TEMP or DCGM_FI_DEV_GPU_TEMP_CELSIUS)`, ""},
		{`DCGM_FI_DEV_GPU_TEMP_CELSIUS offset 1m or DCGM_FI_DEV_GPU_TEMP offset 1m`, ""},
		{`DCGM_FI_DEV_GPU_TEMP_CELSIUS offset 1h or DCGM_FI_DEV_GPU_TEMP`, `DCGM_FI_DEV_GPU_TEMP_CELSIUS offset 1h or DCGM_FI_DEV_GPU_TEMP_CELSIUS`},
		{`DCGM_FI_DEV_GPU_TEMP{gpu="0"} or DCGM_FI_DEV_GPU_TEMP_CELSIUS{gpu="1"}`, `DCGM_FI_DEV_GPU_TEMP_CELSIUS{gpu="0"} or DCGM_FI_DEV_GPU_TEMP_CELSIUS{gpu="1"}`},
		{`max(DCGM_FI_DEV_GPU_TEMP) or min(DCGM_FI_DEV_GPU_TEMP_CELSIUS)`, `max(DCGM_FI_DEV_GPU_TEMP_CELSIUS) or min(DCGM_FI_DEV_GPU_TEMP_CELSIUS)`},
		{`DCGM_FI_DEV_GPU_TEMP and DCGM_FI_DEV_GPU_TEMP_CELSIUS`, `DCGM_FI_DEV_GPU_TEMP_CELSIUS and DCGM_FI_DEV_GPU_TEMP_CELSIUS`},
		{`DCGM_FI_DEV_GPU_TEMP or DCGM_FI_DEV_MEMORY_TEMP_CELSIUS`, `DCGM_FI_DEV_GPU_TEMP_CELSIUS or DCGM_FI_DEV_MEMORY_TEMP_CELSIUS`},
		{ // the other operand still changes
			`(DCGM_FI_DEV_GPU_TEMP or DCGM_FI_DEV_GPU_TEMP_CELSIUS) / DCGM_FI_DEV_SM_CLOCK`,
			`(DCGM_FI_DEV_GPU_TEMP or DCGM_FI_DEV_GPU_TEMP_CELSIUS) / (DCGM_FI_DEV_SM_CLOCK_HERTZ / 1e6)`,
		},
	} {
		t.Run(tt.old, func(t *testing.T) {
			list := findings(t, "rules.json", rule(tt.old), "--to=current")
			got := ""
			if len(list) > 0 {
				got = list[0].New
			}
			if got != tt.want || len(list) > 1 || len(list) == 1 && len(list[0].ByHand) > 0 {
				t.Errorf("got %q, want %q: %+v", got, tt.want, list)
			}
		})
	}
}

// The project's own dashboards and rules query both names: nothing of them changes in either
// direction.
func TestOwnQueriesAreLeft(t *testing.T) {
	files := map[string]string{}
	for _, pattern := range []string{"grafana/*.json", "deployment/rules/*.yml"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) < 3 {
			t.Fatal(paths, err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files[filepath.Base(path)] = string(data)
		}
	}
	for name := range files {
		for _, to := range []string{"current", "classic"} {
			if out, errs, code := diff(t, files, "--to="+to, name); code != command.OK || errs != "" {
				t.Errorf("%s to %s: code %d: %s%s", name, to, code, out, errs)
			}
		}
	}
}
