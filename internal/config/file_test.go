package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"
)

const fullFile = `version: 1
metrics:
  fields:
    - name: DCGM_FI_DEV_GPU_TEMP
      prometheusType: gauge
      help: GPU temperature, in C.
    - {name: DCGM_FI_DEV_XID_ERRORS, prometheusType: gauge}
collection:
  interval: 30s
  watchGroups:
    - name: fast
      interval: 5s
      fields: [DCGM_FI_DEV_GPU_TEMP, "DCGM_FI_DEV_POWER_*"]
    - name: slow
      interval: 5m
      fields:
        - DCGM_FI_DEV_XID_ERRORS
`

func TestFile(t *testing.T) {
	c := mustParse(t, world{files: map[string]string{"/c.yaml": fullFile}}, "--config-file=/c.yaml")
	fields := []Field{
		{Name: "DCGM_FI_DEV_GPU_TEMP", Type: "gauge", Help: "GPU temperature, in C.", Line: 4},
		{Name: "DCGM_FI_DEV_XID_ERRORS", Type: "gauge", Line: 7},
	}
	groups := []WatchGroup{
		{Name: "fast", Interval: 5 * time.Second, Patterns: []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_*"}, Line: 11},
		{Name: "slow", Interval: 5 * time.Minute, Patterns: []string{"DCGM_FI_DEV_XID_ERRORS"}, Line: 14},
	}
	if diff := cmp.Diff(fields, c.Metrics.Fields); diff != "" {
		t.Errorf("fields differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(groups, c.Collection.Groups); diff != "" {
		t.Errorf("groups differ (-want +got):\n%s", diff)
	}
	if c.Collection.Interval != 30*time.Second || c.Metrics.FileNamed {
		t.Errorf("interval = %s, file named = %t; want 30s and false", c.Collection.Interval, c.Metrics.FileNamed)
	}
}

// An unquoted value is a string if a string is expected. A YAML alias has the value of its anchor.
func TestTextsOfAFile(t *testing.T) {
	const file = "version: 1\nmetrics: {fields: [{name: &n 0x1, prometheusType: true, help: *n}]}\ncollection: {interval: 1500ms}\n"
	c := mustParse(t, world{files: map[string]string{"/c.yaml": file}}, "--config-file=/c.yaml")
	if diff := cmp.Diff([]Field{{Name: "0x1", Type: "true", Help: "0x1", Line: 2}}, c.Metrics.Fields); diff != "" || c.Collection.Interval != 1500*time.Millisecond {
		t.Errorf("interval = %v, want 1.5s; fields (-want +got):\n%s", c.Collection.Interval, diff)
	}
}

// TestFileOfVersion2 checks that the same settings in both schemas have the same result.
func TestFileOfVersion2(t *testing.T) {
	const second = `version: 2
metrics:
  fields:
    - name: DCGM_FI_DEV_GPU_TEMP
      prometheusType: gauge
      help: GPU temperature, in C.
    - {name: DCGM_FI_DEV_XID_ERRORS, prometheusType: gauge}
collections:
  - {name: scrape, every: 30s, metrics: {include: ["*"]}}
  - name: fast
    every: 5s
    sources: {dcgm: {watch: {maxKeepAge: 0s, maxKeepSamples: 2}}}
    metrics: {include: [DCGM_FI_DEV_GPU_TEMP, "DCGM_FI_DEV_POWER_*"]}
  - {name: slow, every: 5m, metrics: {include: [DCGM_FI_DEV_XID_ERRORS]}}
`
	w := world{files: map[string]string{"/c.yaml": fullFile, "/d.yaml": second}}
	lines := cmpopts.IgnoreFields
	ignore := []cmp.Option{lines(Config{}, "Path"), lines(WatchGroup{}, "Line")}
	if diff := cmp.Diff(mustParse(t, w, "--config-file=/c.yaml"), mustParse(t, w, "--config-file=/d.yaml"), ignore...); diff != "" {
		t.Errorf("configurations of the two versions differ (-version 1 +version 2):\n%s", diff)
	}
}

// TestFileOfEverySource checks the keys that both versions have.
func TestFileOfEverySource(t *testing.T) {
	const rest = `
metrics: {file: /x.csv, enableExporterMetrics: false}
server: {maxConcurrentScrapes: 16}
sources:
  dcgm:
    watch: {maxKeepAge: 1m, maxKeepSamples: 3}
    detectBindUnbind: {enabled: true, pollInterval: 2s}
`
	for _, version := range []string{"1", "2"} {
		c := mustParse(t, world{files: map[string]string{"/c.yaml": "version: " + version + rest}}, "--config-file=/c.yaml")
		if c.Metrics.File != "/x.csv" || c.Web.ExporterMetrics || c.Web.MaxRequests != 16 {
			t.Errorf("version %s: file = %q, exporter metrics = %t, max requests = %d; want /x.csv, false, 16", version, c.Metrics.File, c.Web.ExporterMetrics, c.Web.MaxRequests)
		}
		if len(c.Notices) != 4 || !strings.HasPrefix(c.Notices[0], "/c.yaml:7: sources.dcgm.detectBindUnbind.enabled has no effect: ") {
			t.Errorf("version %s: notices = %q, want 4, the first in line 7", version, c.Notices)
		}
	}
}

func TestCountersOfTheFileYield(t *testing.T) {
	w := world{files: map[string]string{"/c.yaml": fullFile}, env: map[string]string{"DCGM_EXPORTER_CONFIG_FILE": "/c.yaml"}}
	for _, args := range [][]string{{"-f=/my.csv"}, {"-m=ns:name"}, {"-m=none"}} {
		if c := mustParse(t, w, args...); c.Metrics.Fields != nil || len(c.Collection.Groups) != 2 {
			t.Errorf("%q: fields = %v, groups = %v; want no fields and 2 groups", args, c.Metrics.Fields, c.Collection.Groups)
		}
	}
}

// A badFile is an invalid file with its errors.
type badFile struct {
	name string
	file string
	want []string // the lines of the error
}

func TestFileErrors(t *testing.T) {
	tests := []badFile{
		{"empty", "", []string{"c.yaml: the file is empty: expected keys and values"}},
		{"comment", "# nothing\n", []string{"c.yaml: the file is empty: expected keys and values"}},
		{"null", "---\n...\n", []string{"c.yaml:2: the file is empty: expected keys and values"}},
		{"list", "- a\n", []string{"c.yaml:1: the file is a list: expected keys and values"}},
		{"syntax", "version: 1\nmetrics: [\n", []string{"c.yaml:2: not YAML: did not find expected node content"}},
		{"two documents", "version: 1\n---\nversion: 1\n", []string{"c.yaml:2: second document: expected only one"}},
		{"no version", "metrics:\n  file: a\n", []string{"c.yaml:1: the version is missing: expected version: 1 or 2"}},
		{"other version", "version: 3\n", []string{`c.yaml:1: version "3": expected 1 or 2`}},
		{"quoted version", "version: \"1\"\n", []string{`c.yaml:1: version "1" is a string: expected a number without quotes`}},
		{"unknown key", "version: 1\nmetric: {}\n", []string{`c.yaml:2: unknown key "metric": did you mean "metrics"?`}},
		{"unknown nested keys", "version: 1\ncollection:\n  intervall: 3s\n  zzzzzz: 3\n", []string{
			`c.yaml:3: unknown key "intervall" in collection: did you mean "interval"?`,
			`c.yaml:4: unknown key "zzzzzz" in collection: expected one of interval, retention, watchGroups`,
		}},
		{"merge key", "version: 1\n<<: {metrics: {file: a}}\n", []string{"c.yaml:2: merge key << is not supported: write out the keys"}},
		{"duplicate key", "version: 1\nmetrics: {file: a}\nmetrics: {file: b}\n", []string{"c.yaml:3: duplicate key metrics, first on line 2"}},
		{"duplicate nested key", "version: 1\nmetrics:\n  file: a\n  file: b\n", []string{"c.yaml:4: duplicate key metrics.file, first on line 3"}},
		{"keys with a merged list", "version: 1\nmetrics:\n  <<: {fields: [{name: A, prometheusType: gauge}]}\n", []string{"c.yaml:3: merge key << in metrics is not supported: write out the keys"}},
		{"empty section", "version: 1\nmetrics:\n", []string{"c.yaml:2: metrics is empty: expected a value"}},
		{"file and fields", "version: 1\nmetrics:\n  file: a\n  fields: [{name: A, prometheusType: gauge}]\n", []string{"c.yaml:4: metrics.file and metrics.fields cannot be combined: keep one"}},
		{"file is a list", "version: 1\nmetrics:\n  file: [a]\n", []string{"c.yaml:3: metrics.file is a list: expected a string"}},
		{"file is binary", "version: 1\nmetrics:\n  file: !!binary YQ==\n", []string{`c.yaml:3: metrics.file is "YQ==": expected a string`}},
		{"no fields", "version: 1\nmetrics:\n  fields: []\n", []string{"c.yaml:3: metrics.fields is an empty list: expected at least one element"}},
		{"field is a name", "version: 1\nmetrics:\n  fields: [A]\n", []string{`c.yaml:3: metrics.fields[0] is "A": expected keys and values`}},
		{"field without name and type", "version: 1\nmetrics:\n  fields:\n  - {prometheusType: gauge}\n  - {name: A}\n", []string{
			"c.yaml:4: metrics.fields: the name is missing",
			"c.yaml:5: metrics.fields: A has no prometheusType: expected counter, gauge, label or untyped",
		}},
		{"field twice", "version: 1\nmetrics:\n  fields:\n  - &a {name: A, prometheusType: gauge}\n  - *a\n", []string{"c.yaml:4: metrics.fields: duplicate field A, first on line 4"}},
		{"interval as a number", "version: 1\ncollection:\n  interval: 30000\n", []string{`c.yaml:3: collection.interval "30000": expected a duration such as 30s, above zero`}},
		{"interval zero", "version: 1\ncollection: {interval: 0s}\n", []string{`c.yaml:2: collection.interval "0s": expected a duration such as 30s, above zero`}},
		{"bad group", "version: 1\ncollection:\n  watchGroups:\n  - name: g\n    interval: often\n    fields: [\"a[\"]\n", []string{
			`c.yaml:5: collection.watchGroups[0].interval is "often": expected a duration such as 90s or 5m`,
		}},
		{"bad pattern", "version: 1\ncollection:\n  watchGroups:\n  - {name: g, interval: 5s, fields: [\"a[\"]}\n", []string{
			`c.yaml:4: collection.watchGroups: "a[" is not a pattern: expected a field name, where * matches any text`,
		}},
		{"bare group", "version: 1\ncollection:\n  watchGroups:\n  - {}\n", []string{
			"c.yaml:4: collection.watchGroups: the name is missing",
			`c.yaml:4: collection.watchGroups: "": interval is missing or not above zero: expected a duration such as 5s`,
			`c.yaml:4: collection.watchGroups: "" has no fields`,
		}},
		{"group twice", "version: 1\ncollection:\n  watchGroups:\n  - {name: g, interval: 1s, fields: [A]}\n  - {name: g, interval: 2s, fields: [B]}\n", []string{
			`c.yaml:5: collection.watchGroups: the group "g" is a duplicate, first on line 4`,
		}},
		{"pattern in two groups", "version: 1\ncollection:\n  watchGroups:\n  - {name: g, interval: 1s, fields: [A]}\n  - {name: h, interval: 2s, fields: [B, A]}\n", []string{
			`c.yaml:5: collection.watchGroups: A is also in the group "g" on line 4`,
		}},
	}
	tests = append(tests, badVersion2...)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := world{files: map[string]string{"c.yaml": tt.file}}.parse("--config-file=c.yaml")
			wantError(t, err, strings.Join(tt.want, "\n"))
		})
	}
}

var badVersion2 = []badFile{
	{"collection in version 2", "version: 2\ncollection: {interval: 1s}\n", []string{"c.yaml:2: collection belongs to version 1: expected collections"}},
	{"collections in version 1", "version: 1\ncollections: []\n", []string{"c.yaml:2: collections belongs to version 2: expected collection"}},
	{"quoted version 2", "version: \"2\"\ncollections: [{name: a, every: 1s, metrics: {include: [\"*\"]}}]\n", []string{`c.yaml:1: version "2" is a string: expected a number without quotes`}},
	{"two collections of all fields", "version: 2\ncollections:\n- {name: a, every: 1s, metrics: {include: [\"*\"]}}\n- {name: b, every: 2s, metrics: {include: [\"*\"]}}\n", []string{
		"c.yaml:4: collections: a second collection of all fields, first on line 3",
	}},
	{"no interval", "version: 2\ncollections:\n- {name: a, metrics: {include: [\"*\"]}}\n- {name: b, metrics: {include: [A]}}\n", []string{
		`c.yaml:3: collections: "a": every is missing or not above zero: expected a duration such as 30s`,
		`c.yaml:4: collections: "b": every is missing or not above zero: expected a duration such as 5s`,
	}},
	{"interval of zero", "version: 2\ncollections:\n- {name: a, every: 0s, metrics: {include: [\"*\"]}}\n", []string{
		`c.yaml:3: collections: "a": every is missing or not above zero: expected a duration such as 30s`,
	}},
	{"bare collection", "version: 2\ncollections:\n- {}\n", []string{
		"c.yaml:3: collections: the name is missing",
		`c.yaml:3: collections: "": every is missing or not above zero: expected a duration such as 5s`,
		`c.yaml:3: collections: "" has no metrics.include`,
	}},
	{"misspelled keys", "version: 2\nserver: {maxConcurrentScrape: 1}\nsources: {dcgm: {watch: {maxKeepAges: 1m}}}\n", []string{
		`c.yaml:2: unknown key "maxConcurrentScrape" in server: did you mean "maxConcurrentScrapes"?`,
		`c.yaml:3: unknown key "maxKeepAges" in sources.dcgm.watch: did you mean "maxKeepAge"?`,
	}},
	{"bad number", "version: 2\nserver: {maxConcurrentScrapes: many}\n", []string{
		`c.yaml:2: server.maxConcurrentScrapes "many": expected a number, 0 or more`,
	}},
}

func TestIntervals(t *testing.T) {
	const file = "version: 1\ncollection:\n  watchGroups:\n" +
		"  - {name: clocks, interval: 5s, fields: ['*_CLOCK', A]}\n" +
		"  - {name: sm, interval: 1m, fields: ['SM_*']}\n"
	c := mustParse(t, world{files: map[string]string{"c.yaml": file}}, "--config-file=c.yaml")

	got, err := c.Intervals([][]string{{"A"}, {"B"}, {"NEW_HERTZ", "MEM_CLOCK"}, {"SM_UTIL", "BUSY"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]time.Duration{5 * time.Second, 0, 5 * time.Second, time.Minute}, got); diff != "" {
		t.Errorf("intervals differ (-want +got):\n%s", diff)
	}

	_, err = c.Intervals([][]string{{"A"}, {"NEW", "SM_CLOCK"}})
	wantError(t, err, `c.yaml:5: NEW is in watch group "sm" and also in "clocks" (line 4): expected one group`)

	_, err = c.Intervals([][]string{{"B", "C"}, {"SM_UTIL"}})
	wantError(t, err, `c.yaml:4: watch group "clocks" matches none of the 2 requested fields`)
}

// The keys of the table and those of a file are the same.
func TestFileHasEveryKey(t *testing.T) {
	keys := map[string]bool{}
	var walk func(reflect.Type, string)
	walk = func(typ reflect.Type, path string) {
		switch {
		case typ == reflect.TypeFor[scalar]():
			keys[path] = true
		case typ.Kind() == reflect.Pointer:
			walk(typ.Elem(), path)
		case typ.Kind() == reflect.Struct && typ != reflect.TypeFor[yaml.Node]():
			for i := range typ.NumField() {
				walk(typ.Field(i).Type, strings.TrimPrefix(path+"."+typ.Field(i).Tag.Get("yaml"), "."))
			}
		}
	}
	walk(reflect.TypeFor[file](), "")
	for _, o := range table(&Config{}) {
		if o.key != "" && !keys[o.key] {
			t.Errorf("type file has no key %s of the option --%s, want one", o.key, o.name)
		}
		delete(keys, o.key)
	}
	for key := range keys {
		t.Errorf("no option has the key %s of type file, want one", key)
	}
}
