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
	fast := []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_*"}
	groups := []WatchGroup{
		{Name: "fast", Interval: 5 * time.Second, Patterns: fast, Line: 11},
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
	const file = "version: 1\nmetrics: {fields: [{name: &n 0x1, prometheusType: true, help: *n}]}\n"
	c := mustParse(t, world{files: map[string]string{"/c.yaml": file}}, "--config-file=/c.yaml")
	want := []Field{{Name: "0x1", Type: "true", Help: "0x1", Line: 2}}
	if diff := cmp.Diff(want, c.Metrics.Fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
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
	one, two := mustParse(t, w, "--config-file=/c.yaml"), mustParse(t, w, "--config-file=/d.yaml")
	path, line := cmpopts.IgnoreFields(Config{}, "Path"), cmpopts.IgnoreFields(WatchGroup{}, "Line")
	if diff := cmp.Diff(one, two, path, line); diff != "" {
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
		w := world{files: map[string]string{"/c.yaml": "version: " + version + rest}}
		c := mustParse(t, w, "--config-file=/c.yaml")
		if c.Metrics.File != "/x.csv" || c.Web.ExporterMetrics || c.Web.MaxRequests != 16 {
			t.Errorf("version %s: metrics = %+v, web = %+v; want the values of the file", version, c.Metrics, c.Web)
		}
		const first = "/c.yaml:7: sources.dcgm.detectBindUnbind.enabled has no effect: "
		if len(c.Notices) != 4 || !strings.HasPrefix(c.Notices[0], first) {
			t.Errorf("version %s: notices = %q, want 4, the first in line 7", version, c.Notices)
		}
	}
}

func TestCountersOfTheFileYield(t *testing.T) {
	w := world{files: map[string]string{"/c.yaml": fullFile}}
	for _, arg := range []string{"-f=/my.csv", "-m=ns:name", "-m=none"} {
		c := mustParse(t, w, "--config-file=/c.yaml", arg)
		if c.Metrics.Fields != nil || len(c.Collection.Groups) != 2 {
			t.Errorf("%s: metrics = %+v, collection = %+v; want no fields and 2 groups", arg, c.Metrics, c.Collection)
		}
	}
}

func TestFileErrors(t *testing.T) {
	for _, tt := range readCases(t, "testdata/bad-files.txt") {
		t.Run(tt.name, func(t *testing.T) {
			_, err := world{files: map[string]string{"c.yaml": tt.input}}.parse("--config-file=c.yaml")
			wantError(t, err, tt.want)
		})
	}
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
		case typ.Kind() == reflect.String:
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
		if o.Key != "" && !keys[o.Key] {
			t.Errorf("type file has no key %s of the option --%s, want one", o.Key, o.ID())
		}
		delete(keys, o.Key)
	}
	for key := range keys {
		t.Errorf("no option has the key %s of type file, want one", key)
	}
}
