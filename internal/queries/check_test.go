package queries_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/queries"
)

// checker returns a Checker for a shipped counters file.
func checker(t testing.TB, file string, v catalog.Vocabulary) *queries.Checker {
	t.Helper()
	content, ok := etc.File(file)
	if !ok {
		t.Fatalf("%s is not embedded", file)
	}
	requests, _, err := counters.Parse(bytes.NewReader(content), file)
	if err != nil {
		t.Fatal(err)
	}
	return queries.New(counters.Translate(requests, v, true))
}

func TestCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		expr string
		want []string
	}{
		"a gauge":                  {`avg by (gpu) (DCGM_FI_DEV_GPU_UTIL{gpu="0", cluster="a"}) > 90`, nil},
		"a counter":                {`rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m]) / 1000`, nil},
		"XIDs of the total":        {`increase(DCGM_EXP_XID_ERRORS_TOTAL{xid="79"}[5m]) > 0`, nil},
		"another exporter":         {`rate(node_cpu_seconds_total{xid="x"}[5m])`, nil},
		"a recording rule":         {`gpu:utilization:ratio > 0.9`, nil},
		"a label that is absent":   {`DCGM_FI_DEV_XID_ERRORS{xid!="79"} > 0`, nil},
		"both vocabularies":        {`DCGM_FI_DEV_GPU_TEMP or DCGM_FI_DEV_GPU_TEMP_CELSIUS`, nil},
		"absence":                  {`absent(DCGM_FI_DEV_FB_TOTAL)`, nil},
		"an exception":             {`DCGM_FI_DEV_FB_USED unless DCGM_FI_DEV_FB_TOTAL`, nil},
		"change of a gauge":        {`delta(DCGM_FI_DEV_GPU_TEMP[5m]) > 10`, nil},
		"variables of Grafana":     {`rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu=~"$gpu"}[$__rate_interval])`, nil},
		"a variable for a matcher": {`DCGM_FI_DEV_GPU_TEMP{$matcher}`, nil},
		"milliseconds a second":    {`rate(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL[5m]) / 1e6`, nil},

		"increase of XIDs": {`increase(DCGM_FI_DEV_XID_ERRORS[5m]) > 0`, []string{
			"increase(DCGM_FI_DEV_XID_ERRORS) never sees an XID, because each one is a new series with another err_code; " +
				"use increase(DCGM_EXP_XID_ERRORS_TOTAL[5m]) > 0, or DCGM_FI_DEV_XID_ERRORS > 0"}},
		"changes of XIDs": {`changes(DCGM_FI_DEV_XID_ERRORS[1h])`, []string{
			"changes(DCGM_FI_DEV_XID_ERRORS) never sees an XID, because each one is a new series with another err_code; " +
				"use increase(DCGM_EXP_XID_ERRORS_TOTAL[1h]) > 0, or DCGM_FI_DEV_XID_ERRORS > 0"}},
		"label of another family": {`DCGM_FI_DEV_XID_ERRORS{xid=~"79"} > 0`, []string{"DCGM_FI_DEV_XID_ERRORS has no label xid; it has err_code, err_msg"}},
		"label in another case":   {`DCGM_FI_DEV_GPU_TEMP{GPU="0"}`, []string{"DCGM_FI_DEV_GPU_TEMP has no label GPU; did you mean gpu?"}},
		"rate of a gauge": {`rate(DCGM_FI_DEV_GPU_UTIL[5m]) > 0.9`, []string{
			"rate(DCGM_FI_DEV_GPU_UTIL): the metric is a gauge in percent, not a counter; use it as it is, or avg_over_time(DCGM_FI_DEV_GPU_UTIL[5m])"}},
		"increase of a window": {`increase(DCGM_EXP_XID_ERRORS_COUNT[5m])`, []string{
			"increase(DCGM_EXP_XID_ERRORS_COUNT): the gauge already counts within a window; use it without increase, or the counter …_TOTAL"}},
		"a line is missing": {`DCGM_FI_DEV_FB_USED / DCGM_FI_DEV_FB_TOTAL > 0.9`, []string{
			`nothing collects DCGM_FI_DEV_FB_TOTAL; add the line "DCGM_FI_DEV_FB_TOTAL, gauge" to the counters file`}},
		"all alternatives are missing": {`DCGM_FI_DEV_FB_TOTAL or vector(0)`, []string{
			`nothing collects DCGM_FI_DEV_FB_TOTAL; add the line "DCGM_FI_DEV_FB_TOTAL, gauge" to the counters file`}},
		"the other vocabulary": {`DCGM_FI_DEV_GPU_TEMP_CELSIUS > 90`, []string{
			"DCGM_FI_DEV_GPU_TEMP_CELSIUS is not served; with this --vocabulary, the metric is named DCGM_FI_DEV_GPU_TEMP"}},
		"a name of version 1.x": {`dcgm_gpu_temp > 90`, []string{
			"dcgm_gpu_temp is not served; its field is served as DCGM_FI_DEV_GPU_TEMP"}},
		"a misspelled metric": {`DCGM_FI_DEV_GPU_TMP > 90`, []string{"there is no metric DCGM_FI_DEV_GPU_TMP; did you mean DCGM_FI_DEV_GPU_TEMP?"}},
		"nanoseconds": {`increase(DCGM_FI_DEV_POWER_VIOLATION[5m]) / 300000000 > 0.5`, []string{
			`nothing collects DCGM_FI_DEV_POWER_VIOLATION; add the line "DCGM_FI_DEV_POWER_VIOLATION, counter" to the counters file`,
			"DCGM_FI_DEV_POWER_VIOLATION is in nanoseconds, so increase(DCGM_FI_DEV_POWER_VIOLATION[5m]) / 300000000 can reach 1000 instead of 1; divide by 300e9"}},
		"nanoseconds, right": {`increase(DCGM_FI_DEV_POWER_VIOLATION[5m]) / 300e9 > 0.5`, []string{
			`nothing collects DCGM_FI_DEV_POWER_VIOLATION; add the line "DCGM_FI_DEV_POWER_VIOLATION, counter" to the counters file`}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, checker(t, etc.FleetName, catalog.Classic).Check(tt.expr)); diff != "" {
				t.Errorf("findings of %s (-want +got):\n%s", tt.expr, diff)
			}
		})
	}
	if got := checker(t, etc.DefaultName, catalog.Classic).Check("sum(DCGM_FI_DEV_GPU_TEMP"); len(got) != 1 || !strings.HasPrefix(got[0], "not PromQL: ") {
		t.Errorf("findings of a broken expression = %q, want one that begins with \"not PromQL: \"", got)
	}
}

// The shipped rules and dashboards pass with the counters file that they are made for, in every vocabulary.
func TestShippedQueriesPass(t *testing.T) {
	for _, pattern := range []string{"../../deployment/rules/*.yml", "../../grafana/*.json"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no file matches %s: %v", pattern, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			list, err := queries.Read(content)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for _, v := range []catalog.Vocabulary{catalog.Classic, catalog.Current, catalog.Both} {
				c := checker(t, etc.FleetName, v)
				for _, q := range list {
					for _, sentence := range c.Check(q.Expr) {
						t.Errorf("%s:%d: %s, vocabulary %v: finding %q, want none", file, q.Line, q.Name, v, sentence)
					}
				}
			}
		}
	}
}

func TestRead(t *testing.T) {
	const rules = "groups:\n- name: g\n  rules:\n  - alert: Hot\n    expr: a > 1\n  - record: r\n    expr: |\n      b\n"
	const dashboard = `{"title": "T", "panels": [
		{"title": "P", "targets": [{"expr": "c"}, {"expr": ""}]},
		{"type": "row", "panels": [{"targets": [{"expr": "d"}]}]}]}`
	for name, tt := range map[string]struct {
		file string
		want []queries.Query
	}{
		"rules":            {rules, []queries.Query{{5, "Hot", "a > 1"}, {7, "r", "b"}}},
		"a PrometheusRule": {"spec:\n  " + strings.ReplaceAll(rules, "\n", "\n  "), []queries.Query{{6, "Hot", "a > 1"}, {8, "r", "b"}}},
		"a dashboard":      {dashboard, []queries.Query{{2, "P", "c"}, {3, "T", "d"}}},
		"two documents":    {"a: 1\n---\n" + rules, []queries.Query{{7, "Hot", "a > 1"}, {9, "r", "b"}}},
		"a ConfigMap": {"kind: ConfigMap\ndata:\n  d.json: |\n" + indented(dashboard) + "  r.yaml: |\n" + indented(rules) + "  notes.txt: |\n    expr: e\n",
			[]queries.Query{{5, "P", "c"}, {6, "T", "d"}, {12, "Hot", "a > 1"}, {14, "r", "b"}}},
		"a GrafanaDashboard": {"kind: GrafanaDashboard\nspec:\n  json: |\n" + indented(dashboard), []queries.Query{{5, "P", "c"}, {6, "T", "d"}}},
	} {
		got, err := queries.Read([]byte(tt.file))
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v, queries (-want +got):\n%s", name, err, diff)
		}
	}
	for _, file := range []string{"", "{}", "a: [", "version: 1\ncollection: {interval: 30s}\n"} {
		if _, err := queries.Read([]byte(file)); !errors.Is(err, queries.ErrNoQueries) {
			t.Errorf("Read(%q) = %v, want ErrNoQueries", file, err)
		}
	}
}

// indented returns a file as a block of text within a mapping of a Kubernetes object.
func indented(file string) string {
	return "    " + strings.ReplaceAll(strings.TrimSuffix(file, "\n"), "\n", "\n    ") + "\n"
}

func FuzzCheck(f *testing.F) {
	for _, expr := range []string{
		`increase(DCGM_FI_DEV_POWER_VIOLATION[5m]) / 3e8`, `rate(DCGM_FI_DEV_GPU_UTIL[5m:1m] offset 1h)`, `{__name__=~"DCGM_.*"}`,
		`a or b unless absent(c)`, `increase(DCGM_FI_DEV_POWER_VIOLATION[1i]) / 0`, `WITH (x = DCGM_FI_DEV_GPU_TEMP) x`, `rate(x)`, `topk(3, )`,
	} {
		f.Add(expr)
	}
	c := checker(f, etc.HealthName, catalog.Both)
	f.Fuzz(func(t *testing.T, expr string) {
		for _, sentence := range c.Check(expr) {
			if sentence == "" {
				t.Error("finding without text, want a sentence")
			}
		}
	})
}
