package command_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// opener opens a source. If it is nil, opening a source is a test failure.
type opener = func(context.Context, *config.Config, *gpu.Plan) (app.Backend, error)

func runCheck(t *testing.T, w *world, open opener, args ...string) int {
	t.Helper()
	w.Open = open
	return run(t, "check", w.process(args...))
}

func wantOutput(t *testing.T, w *world, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), w.Out.String()); diff != "" {
		t.Errorf("output differs (-want +got):\n%s", diff)
	}
}

const mixed = `# Everything that can be said of a line
DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DEV_GPU_TMP, gauge, A slip.
DCGM_FI_DEV_POWER_USAGE, counter, The wrong type.
DCGM_FI_DRIVER_VERSION, label, Driver.
DCGM_FI_PROF_DRAM_ACTIVE, gauge, Profiling.
DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, Of a CPU.
DCGM_EXP_XID_ERRORS_COUNT, gauge, Derived.
`

func TestWithoutHardware(t *testing.T) {
	w := &world{Files: map[string]string{"my.csv": mixed}}
	if code := runCheck(t, w, nil, "my.csv"); code != command.Faulty {
		t.Errorf("exit code = %d, want %d", code, command.Faulty)
	}
	wantOutput(t, w, `
my.csv
LINE  METRIC                        TYPE     UNIT     OF                 SAYS
2     DCGM_FI_DEV_GPU_TEMP          gauge    celsius  GPU                collected if the GPU has this field
3     -                             -        -        -                  NOT COLLECTED: unknown field "DCGM_FI_DEV_GPU_TMP": expected a DCGM field or an exporter family; did you mean DCGM_FI_DEV_GPU_TEMP?
4     DCGM_FI_DEV_POWER_USAGE       counter  watts    GPU                collected if the GPU has this field
4     -                             -        -        -                  warning: type counter, although the value can go down, for "DCGM_FI_DEV_POWER_USAGE": expected type gauge
5     DCGM_FI_DRIVER_VERSION        label    -        node               collected, once per GPU
6     DCGM_FI_PROF_DRAM_ACTIVE      gauge    ratio    GPU, GPU instance  collected if the GPU and the permissions allow profiling
7     DCGM_FI_DEV_CPU_TEMP_CURRENT  gauge    celsius  CPU                collected on machines with CPU
8     DCGM_EXP_XID_ERRORS_COUNT     gauge    -        -                  computed by the exporter from events
5 metrics, 1 label, 1 line not usable, 1 warning.
`)
}

func TestCheckWithSource(t *testing.T) {
	w := &world{Files: map[string]string{"my.csv": strings.ReplaceAll(mixed, "DCGM_FI_DEV_GPU_TMP", "DCGM_FI_DEV_GPU_UTIL")}}
	if code := runCheck(t, w, simulate, "--source=sim", "my.csv"); code != command.OK {
		t.Errorf("exit code = %d, want 0; stderr: %s", code, &w.Err)
	}
	wantOutput(t, w, `
my.csv
Source sim: 8 GPUs, 11 GPU instances, driver 570.124.06.
LINE  METRIC                        TYPE     UNIT     OF                 SAYS
2     DCGM_FI_DEV_GPU_TEMP          gauge    celsius  GPU                collected: 8 values
3     DCGM_FI_DEV_GPU_UTIL          gauge    percent  GPU                collected in part: 6 values (not supported)
4     DCGM_FI_DEV_POWER_USAGE       counter  watts    GPU                collected: 8 values
4     -                             -        -        -                  warning: type counter, although the value can go down, for "DCGM_FI_DEV_POWER_USAGE": expected type gauge
5     DCGM_FI_DRIVER_VERSION        label    -        node               collected: 19 values
6     DCGM_FI_PROF_DRAM_ACTIVE      gauge    ratio    GPU, GPU instance  collected: 17 values
7     DCGM_FI_DEV_CPU_TEMP_CURRENT  gauge    celsius  CPU                not collected here: no entity
8     DCGM_EXP_XID_ERRORS_COUNT     gauge    -        -                  collected: 8 values
6 metrics, 1 label, 0 lines not usable, 1 warning.
`)
}

func TestSourceThatDoesNotOpen(t *testing.T) {
	w := &world{Files: map[string]string{"my.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, T\n"}}
	refuse := refuse(fmt.Errorf("%w: no libdcgm.so.4", gpu.ErrUnavailable))
	if code := runCheck(t, w, refuse, "--source=dcgm", "my.csv"); code != command.Faulty {
		t.Errorf("exit code = %d, want %d", code, command.Faulty)
	}
	if got, want := w.Err.String(), "dcgm-exporter check: unavailable: no libdcgm.so.4\n"; got != want {
		t.Errorf("stderr = %q, want %q", got, want)
	}
	// Results from the catalog are still printed.
	if !strings.Contains(w.Out.String(), "collected if the GPU has this field") {
		t.Errorf("output = %q, want that the field is collected if the GPU has this field", &w.Out)
	}
}

func TestCheckYAML(t *testing.T) {
	const fields = `version: 1
metrics:
  fields:
    - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge}
    - {name: DCGM_FI_DEV_SM_CLOK, prometheusType: gauge}
    - {name: DCGM_FI_DEV_FB_USED, prometheusType: gage}
collection:
  watchGroups:
    - {name: fast, interval: 5s, fields: [DCGM_FI_PROF_*]}
`
	w := &world{
		Files: map[string]string{"c.yaml": fields, "/other.csv": "DCGM_FI_DEV_ECC_CURRENT, gauge, E\n"},
		Env:   map[string]string{"DCGM_EXPORTER_COLLECTORS": "/other.csv"}, // must not replace the file's own fields
	}
	if code := runCheck(t, w, nil, "c.yaml"); code != command.Faulty {
		t.Errorf("exit code = %d, want %d", code, command.Faulty)
	}
	wantOutput(t, w, `
c.yaml
LINE  METRIC                TYPE   UNIT     OF   SAYS
4     DCGM_FI_DEV_GPU_TEMP  gauge  celsius  GPU  collected if the GPU has this field
5     -                     -      -        -    NOT COLLECTED: unknown field "DCGM_FI_DEV_SM_CLOK": expected a DCGM field or an exporter family; did you mean DCGM_FI_DEV_SM_CLOCK?
6     -                     -      -        -    NOT COLLECTED: unknown type "gage": expected counter, gauge, label or untyped
c.yaml:9: watch group "fast" matches none of the 1 requested fields
1 metric, 0 labels, 3 lines not usable, 0 warnings.
`)
}

func TestSeveralFiles(t *testing.T) {
	w := &world{
		In: "DCGM_FI_DEV_GPU_TEMP, gauge, T\n",
		Files: map[string]string{
			"broken.yml": "version: 3\n",
			"empty.csv":  "# nothing\n",
		},
	}
	if code := runCheck(t, w, nil, "-", "broken.yml", "empty.csv"); code != command.Faulty {
		t.Errorf("exit code = %d, want %d", code, command.Faulty)
	}
	wantOutput(t, w, `
standard input
LINE  METRIC                TYPE   UNIT     OF   SAYS
1     DCGM_FI_DEV_GPU_TEMP  gauge  celsius  GPU  collected if the GPU has this field
1 metric, 0 labels, 0 lines not usable, 0 warnings.

broken.yml:1: version "3": expected the number 1 or 2

empty.csv
LINE  METRIC  TYPE  UNIT  OF  SAYS
-     -       -     -     -   NOT COLLECTED: no counters found: expected lines of FIELD, type, help
0 metrics, 0 labels, 1 line not usable, 0 warnings.
`)
}

func TestWithoutFiles(t *testing.T) {
	for _, tt := range []struct {
		name  string
		world world
		args  []string
		first string
		code  int
	}{
		{"built-in", world{}, nil, "built-in default-counters.csv", command.OK},
		{"default path", world{Files: map[string]string{"/etc/dcgm-exporter/default-counters.csv": "DCGM_FI_DEV_GPU_TEMP,gauge,T"}}, nil, "/etc/dcgm-exporter/default-counters.csv", command.OK},
		{"variable", world{Files: map[string]string{"/a.csv": "x"}, Env: map[string]string{"DCGM_EXPORTER_COLLECTORS": "/a.csv"}}, nil, "/a.csv", command.Faulty},
		{"notices come first", world{}, []string{"--disable-startup-validate"}, "--disable-startup-validate has no effect: the exporter starts without a driver and reports what is missing.", command.OK},
		{"both vocabularies", world{Files: map[string]string{"/a.csv": "DCGM_FI_DEV_SM_CLOCK,gauge,C"}}, []string{"-f=/a.csv", "--vocabulary=both"}, "/a.csv", command.OK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if code := runCheck(t, &tt.world, nil, tt.args...); code != tt.code {
				t.Errorf("exit code = %d, want %d", code, tt.code)
			}
			if first, _, _ := strings.Cut(tt.world.Out.String(), "\n"); first != tt.first {
				t.Errorf("first line = %q, want %q", first, tt.first)
			}
			if tt.name == "both vocabularies" && !strings.Contains(tt.world.Out.String(), "DCGM_FI_DEV_SM_CLOCK_HERTZ") {
				t.Errorf("output = %s\nwant also the name of DCGM 4.9", &tt.world.Out)
			}
		})
	}
}

func TestCheckIsUnable(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--sorce=sim", "dcgm-exporter check: unknown flag --sorce: did you mean --source? (see --help)\n"},
		{"none.csv", "dcgm-exporter check: open none.csv: file does not exist\n"},
		{"none.yaml", "dcgm-exporter check: open none.yaml: file does not exist\n"},
		{"-f=/none.csv", "dcgm-exporter check: open /none.csv: file does not exist\n"},
	} {
		w := &world{}
		if code := runCheck(t, w, nil, tt.args); code != command.Unable || w.Err.String() != tt.want {
			t.Errorf("%s: exit code = %d, stderr = %q; want %d, %q", tt.args, code, &w.Err, command.Unable, tt.want)
		}
	}
	w := &world{Files: map[string]string{"my.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, T\n"}}
	open := refuse(errors.New("strange"))
	if code := runCheck(t, w, open, "--source=dcgm", "my.csv"); code != command.Unable {
		t.Errorf("source with an unclassified error: exit code = %d, want %d", code, command.Unable)
	}
}

// Families that strict mode removes are not reported as collected, with or without a source.
func TestCheckUnderStrict(t *testing.T) {
	for _, args := range [][]string{nil, {"--source=sim"}} {
		w := &world{Files: map[string]string{"my.csv": `DCGM_EXP_NODE_HEALTH_STATUS, gauge, Health.
DCGM_EXP_NVLINK_EFFECTIVE_BER, gauge, By link.
dcgm_exporter_gpu_verdict, gauge, Verdict.
`}}
		if code := runCheck(t, w, simulate, append(args, "--compatibility=strict", "my.csv")...); code != command.OK {
			t.Errorf("exit code = %d, want 0; stderr: %s", code, &w.Err)
		}
		if out := w.Out.String(); strings.Count(out, "left out: --compatibility=strict") != 3 {
			t.Errorf("%v: output\n%s\nwant 3 lines that are left out in strict mode", args, out)
		}
	}
}

// Without the families that it needs, a verdict is unknown. check names the missing lines.
func TestCheckWarnsOfVerdictWithoutCounters(t *testing.T) {
	w := &world{Files: map[string]string{"my.csv": `dcgm_exporter_gpu_verdict, gauge, Verdict.
DCGM_EXP_GPU_HEALTH_STATUS, gauge, Health.
DCGM_EXP_FABRIC_STATE, gauge, Fabric.
`}}
	if code := runCheck(t, w, simulate, "my.csv"); code != command.OK {
		t.Errorf("exit code = %d, want 0; stderr: %s", code, &w.Err)
	}
	const want = "expected lines for DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS, DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL"
	if out := w.Out.String(); !strings.Contains(out, `reason="no_counters"`) || !strings.Contains(out, want) || !strings.Contains(out, "1 warning") {
		t.Errorf("output\n%s\nwant 1 warning with no_counters and the missing lines", out)
	}
}

// Rules and dashboards are checked against the counters file of -f.
func TestCheckQueries(t *testing.T) {
	const rules = "groups:\n- name: g\n  rules:\n  - {alert: A, expr: 'rate(DCGM_FI_DEV_GPU_UTIL[5m]) > 0.9'}\n  - {alert: B, expr: DCGM_FI_DEV_GPU_TEMP > 90}\n"
	const file = "DCGM_FI_DEV_GPU_UTIL, gauge, u\n"
	for name, tt := range map[string]struct {
		file string
		code int
		want string
	}{
		"rules.yml": {rules, command.Faulty, "rules.yml\n" +
			"4: A: rate(DCGM_FI_DEV_GPU_UTIL): the metric is a gauge in percent, not a counter; use it as it is, or avg_over_time(DCGM_FI_DEV_GPU_UTIL[5m])\n" +
			"5: B: nothing collects DCGM_FI_DEV_GPU_TEMP; add the line \"DCGM_FI_DEV_GPU_TEMP, gauge\" to the counters file\n" +
			"2 expressions, 2 findings, with the counters of c.csv.\n"},
		"board.json": {`{"title": "T", "targets": [{"expr": "DCGM_FI_DEV_GPU_UTIL"}]}`, command.OK, "board.json\n1 expression, 0 findings, with the counters of c.csv.\n"},
		"empty.json": {"{}", command.Unable, "dcgm-exporter check: empty.json: neither Prometheus rules nor a Grafana dashboard\n"},
	} {
		w := world{Files: map[string]string{name: tt.file, "c.csv": file}}
		if code := command.Run(t.Context(), "check", w.process("-f", "c.csv", name)); code != tt.code {
			t.Errorf("check %s: exit code = %d, want %d", name, code, tt.code)
		}
		if got := w.Out.String() + w.Err.String(); got != tt.want {
			t.Errorf("check %s printed\n%swant\n%s", name, got, tt.want)
		}
	}
}
