package vocabulary_test

import (
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/commandtest"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/vocabulary"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

var update = flag.Bool("update", false, "write the goldens")

const root = "../../.."

// diff runs the subcommand over files, given as name and content.
func diff(t *testing.T, files map[string]string, args ...string) (out, errs string, code int) {
	t.Helper()
	w := &commandtest.World{Files: files}
	code = vocabulary.Command{Process: w.Process(append([]string{"diff"}, args...)...)}.Run()
	return w.Out.String(), w.Err.String(), code
}

// findings runs the subcommand over one file and returns what it found.
func findings(t *testing.T, name, text string, args ...string) []vocabulary.Finding {
	t.Helper()
	out, errs, _ := diff(t, map[string]string{name: text}, append(args, "--format=json", name)...)
	if errs != "" {
		t.Fatal(errs)
	}
	var list []vocabulary.Finding
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// rule is a rule file with one expression.
func rule(expr string) string {
	quoted, _ := json.Marshal(expr)
	return `{"groups": [{"name": "g", "rules": [{"record": "r", "expr": ` + string(quoted) + `}]}]}`
}

func TestGoldens(t *testing.T) {
	for file, golden := range map[string]string{
		"testdata/node.json":       "node.txt",
		"testdata/rules.yaml":      "rules.txt",
		"testdata/manifests.yaml":  "manifests.txt",
		"testdata/dashboard.json":  "dashboard.txt",
		"testdata/configmaps.yaml": "configmaps.txt",
	} {
		t.Run(golden, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			base := filepath.Base(file)
			got, errs, code := diff(t, map[string]string{base: string(data)}, base)
			if errs != "" || code != command.Faulty {
				t.Errorf("code %d, said %q", code, errs)
			}
			path := filepath.Join("testdata", golden)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestExpressions(t *testing.T) {
	for _, tt := range []struct{ old, want string }{
		{`DCGM_FI_DEV_SM_CLOCK`, `DCGM_FI_DEV_SM_CLOCK_HERTZ / 1e6`},
		{`DCGM_FI_DEV_SM_CLOCK * 1000000`, `DCGM_FI_DEV_SM_CLOCK_HERTZ`},
		{`1e6 * DCGM_FI_DEV_SM_CLOCK`, `DCGM_FI_DEV_SM_CLOCK_HERTZ`},
		{`DCGM_FI_DEV_SM_CLOCK * 1e3`, `DCGM_FI_DEV_SM_CLOCK_HERTZ / 1e6 * 1e3`},
		{`100 / DCGM_FI_DEV_SM_CLOCK`, `100 / (DCGM_FI_DEV_SM_CLOCK_HERTZ / 1e6)`},
		{`DCGM_FI_DEV_GPU_UTIL ^ 2`, `(DCGM_FI_DEV_GPU_UTIL_RATIO * 100) ^ 2`},
		{`2 - DCGM_FI_DEV_GPU_UTIL`, `2 - DCGM_FI_DEV_GPU_UTIL_RATIO * 100`},
		{`-DCGM_FI_DEV_GPU_UTIL`, `-DCGM_FI_DEV_GPU_UTIL_RATIO * 100`},
		{`DCGM_FI_DEV_GPU_UTIL offset 5m > bool 90`, `DCGM_FI_DEV_GPU_UTIL_RATIO offset 5m * 100 > bool 90`},
		{`rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m]) / 1000`, `rate(DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL[5m])`},
		{`stdvar_over_time(DCGM_FI_DEV_GPU_UTIL[5m])`, `stdvar_over_time(DCGM_FI_DEV_GPU_UTIL_RATIO[5m]) * 10000`},
		{`changes(DCGM_FI_DEV_GPU_UTIL[5m])`, `changes(DCGM_FI_DEV_GPU_UTIL_RATIO[5m])`},
		{`max_over_time(DCGM_FI_DEV_FB_USED[5m:1m])`, `max_over_time((DCGM_FI_DEV_FB_USED_BYTES / 1048576)[5m:1m])`},
		{`absent(DCGM_FI_DEV_FB_USED{gpu="0"} * 1048576)`, `absent(DCGM_FI_DEV_FB_USED_BYTES{gpu="0"} / 1048576 * 1048576)`},
		{`timestamp(DCGM_FI_DEV_FB_USED)`, `timestamp(DCGM_FI_DEV_FB_USED_BYTES)`},
		{`count((DCGM_FI_DEV_FB_USED))`, `count((DCGM_FI_DEV_FB_USED_BYTES))`},
		{`count(DCGM_FI_DEV_FB_USED > 5)`, `count(DCGM_FI_DEV_FB_USED_BYTES / 1048576 > 5)`},
		{`{__name__="DCGM_FI_DEV_FB_USED"}`, `{__name__="DCGM_FI_DEV_FB_USED_BYTES"} / 1048576`},
		{`{"DCGM_FI_DEV_GPU_TEMP", gpu="0"}`, `{"DCGM_FI_DEV_GPU_TEMP_CELSIUS", gpu="0"}`},
		{`{__name__=~"DCGM_FI_DEV_GPU_TEMP|up"}`, `{__name__=~"DCGM_FI_DEV_GPU_TEMP_CELSIUS|up"}`},
		{`{__name__!='DCGM_FI_DEV_FB_USED',gpu="0"}`, `{__name__!='DCGM_FI_DEV_FB_USED_BYTES',gpu="0"}`},
		{`sum by (Hostname) (DCGM_FI_DEV_GPU_TEMP{Hostname="a"})`, `sum by (hostname) (DCGM_FI_DEV_GPU_TEMP_CELSIUS{hostname="a"})`},
		{
			`DCGM_FI_DEV_GPU_TEMP * on (gpu) group_left (DCGM_FI_DRIVER_VERSION) dcgm_exporter_entity_up`,
			`DCGM_FI_DEV_GPU_TEMP_CELSIUS * on (gpu) group_left (DCGM_FI_SYSTEM_DRIVER_VERSION) dcgm_exporter_entity_up`,
		},
		{
			`label_replace(DCGM_FI_DEV_GPU_TEMP, "v", "$1", "DCGM_FI_DRIVER_VERSION", "(.*)")`,
			`label_replace(DCGM_FI_DEV_GPU_TEMP_CELSIUS, "v", "$1", "DCGM_FI_SYSTEM_DRIVER_VERSION", "(.*)")`,
		},
		{"DCGM_FI_DEV_FB_USED # in MiB\n", "DCGM_FI_DEV_FB_USED_BYTES / 1048576 # in MiB\n"},
		{`node_cpu_seconds_total{Hostname="a"}`, ""},
		{`DCGM_EXP_XID_ERRORS_COUNT{gpu="0"}`, ""},
	} {
		t.Run(tt.old, func(t *testing.T) {
			list := findings(t, "rules.json", rule(tt.old), "--to", "current")
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

// What cannot be rewritten exactly is left alone and reported.
func TestByHand(t *testing.T) {
	for _, tt := range []struct{ expr, want string }{
		{`sum({__name__=~"DCGM_FI_DEV_FB_(USED|FREE)"})`, "matches DCGM_FI_DEV_FB_"},
		{`{__name__=~"DCGM_FI_DEV_FB_USED|DCGM_FI_DEV_FB_FREE"}`, "matches DCGM_FI_DEV_FB_"},
		{`sum({__name__=~"DCGM_FI_DEV_FB_.*"})`, "in different units: DCGM_FI_DEV_FB_"},
		{`{__name__!~"DCGM_FI_DEV_GPU_TEMP",gpu="0"}`, "matches DCGM_FI_DEV_GPU_TEMP"},
		{`sum by (Hostname) (DCGM_EXP_XID_ERRORS_COUNT / on (Hostname) foreign)`, "groups by Hostname"},
	} {
		list := findings(t, "rules.json", rule(tt.expr), "--to=current")
		if len(list) != 1 || list[0].New != "" || len(list[0].ByHand) == 0 || !strings.Contains(list[0].ByHand[0], tt.want) {
			t.Errorf("%s: %+v, want %q", tt.expr, list, tt.want)
		}
	}
}

// The host label follows the exporter's setting, in either direction.
func TestHostnameLabel(t *testing.T) {
	expr := `sum by (hostname) (DCGM_EXP_XID_ERRORS_COUNT{Hostname="a"})`
	for label, want := range map[string]string{
		"hostname": `sum by (hostname) (DCGM_EXP_XID_ERRORS_COUNT{hostname="a"})`,
		"Hostname": `sum by (Hostname) (DCGM_EXP_XID_ERRORS_COUNT{Hostname="a"})`,
		"both":     "",
	} {
		got := ""
		if list := findings(t, "rules.json", rule(expr), "--hostname-label", label); len(list) > 0 {
			got = list[0].New
		}
		if got != want {
			t.Errorf("%s: %q, want %q", label, got, want)
		}
	}
}

func TestNothingToChange(t *testing.T) {
	file := map[string]string{"rules.json": rule("DCGM_FI_DEV_GPU_TEMP > 80")}
	out, errs, code := diff(t, file, "--to=classic", "rules.json")
	if code != command.OK || errs != "" || out != "0 to change, 0 to look at by hand, in 1 file\n" {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}

func TestUnreadable(t *testing.T) {
	files := map[string]string{
		"cut.json":   "{\n \"panels\": [\n",
		"comma.json": "{\n \"panels\": [1,, 2]}",
		"tab.yaml":   "groups:\n\t- name: x\n",
		"other.yaml": "hello: world\n",
		"promql.yml": "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: sum(DCGM_FI_DEV_GPU_TEMP\n",
		"deep.json":  strings.Repeat("[", 300),
		"good.yaml":  rule("DCGM_FI_DEV_GPU_TEMP"),
	}
	for file, want := range map[string]string{
		"cut.json":    "cut.json:3: not JSON",
		"comma.json":  "comma.json:2: not JSON",
		"tab.yaml":    "tab.yaml:2: not YAML",
		"other.yaml":  "other.yaml:1: no dashboard",
		"promql.yml":  `promql.yml:5: group "g", rule "A": not PromQL`,
		"deep.json":   "deep.json:1: nested deeper",
		"absent.json": "absent.json: " + fs.ErrNotExist.Error(),
	} {
		out, errs, code := diff(t, files, file, "good.yaml")
		if code != command.Unable || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: code %d, said %q, want %q", file, code, errs, want)
		}
		if !strings.Contains(out, "DCGM_FI_DEV_GPU_TEMP_CELSIUS") {
			t.Errorf("%s keeps the good file from being reported:\n%s", file, out)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "expected: vocabulary diff"},
		{[]string{"diff"}, "expected a file"},
		{[]string{"diff", "--to"}, "expected current or classic"},
		{[]string{"diff", "--to", "both", "x"}, `--to "both": expected current or classic`},
		{[]string{"diff", "--form", "x"}, "unknown flag --form"},
	} {
		w := &commandtest.World{}
		if code := (vocabulary.Command{Process: w.Process(tt.args...)}).Run(); code != command.Unable || !strings.Contains(w.Err.String(), tt.want) {
			t.Errorf("%v: code %d, said %q", tt.args, code, w.Err.String())
		}
	}
	w := &commandtest.World{In: rule("DCGM_FI_DEV_GPU_TEMP")}
	if code := (vocabulary.Command{Process: w.Process("diff", "-")}).Run(); code != command.Faulty || !strings.Contains(w.Out.String(), "standard input, to current") {
		t.Errorf("standard input: code %d, said %q", code, w.Out.String())
	}
	w = &commandtest.World{}
	if code := (vocabulary.Command{Process: w.Process("--help")}).Run(); code != command.OK || w.Out.String() != vocabulary.Usage {
		t.Errorf("help: code %d", code)
	}
}

// referenceDashboard is the reference's own, of the material beside the repository.
const referenceDashboard = "data/upstream/dcgm-exporter/dcgm-exporter-dashboard.json"

// The reference's own dashboard is rewritten whole, and the result has nothing left to change.
func TestReferenceDashboard(t *testing.T) {
	text := string(material.Read(t, referenceDashboard))
	list := findings(t, "dashboard.json", text)
	if len(list) != 12 {
		t.Errorf("%d findings, want 8 queries and 4 of variables", len(list))
	}
	for _, f := range list {
		if f.New == "" || len(f.ByHand) > 0 {
			t.Errorf("%s: not rewritten: %v", f.Place, f.ByHand)
			continue
		}
		before, _ := json.Marshal(f.Old)
		after, _ := json.Marshal(f.New)
		text = strings.ReplaceAll(text, string(before), string(after))
	}
	if again := findings(t, "dashboard.json", text, "--to=current"); len(again) != 0 {
		t.Errorf("rewritten, and still to change: %+v", again)
	}
}
