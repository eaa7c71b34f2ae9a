package values_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/google/go-cmp/cmp"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/values"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// leaves returns the leaves of a values file by path.
func leaves(t *testing.T, text string) map[string]any {
	t.Helper()
	var root map[string]any
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	var walk func(path chart.Path, v any)
	walk = func(path chart.Path, v any) {
		m, isMap := v.(map[string]any)
		if !isMap || len(m) == 0 && len(path) > 0 {
			out[path.String()] = v
			return
		}
		for name, inner := range m {
			walk(append(path[:len(path):len(path)], name), inner)
		}
	}
	walk(nil, root)
	return out
}

// otherValue returns a value that differs from v.
func otherValue(v any) any {
	switch v := v.(type) {
	case bool:
		return !v
	case int:
		return v + 1
	case []any:
		return append(slices.Clone(v), map[string]any{"user": "own"})
	case map[string]any:
		return map[string]any{"user": "own"}
	}
	return "users-own"
}

func setAt(root map[string]any, path chart.Path, v any) {
	for _, name := range path[:len(path)-1] {
		next, _ := root[name].(map[string]any)
		if next == nil {
			next = map[string]any{}
			root[name] = next
		}
		root = next
	}
	root[path[len(path)-1]] = v
}

func readValues(t *testing.T, dir string, v chart.Version) string {
	t.Helper()
	return folder.Read(t, dir, v.String(), "values.yaml")
}

// Migration from every release keeps all comments, and the user's values for keys that both releases have.
func TestMigrationLosesNothingThatBothRead(t *testing.T) {
	dir := charts.Data(t)
	table := chart.Load()
	var reads map[string][]string
	charts.Read(t, filepath.Join(dir, "template-reads.json"), &reads)
	to := table.Latest()
	target := map[string]bool{}
	for _, path := range slices.AppendSeq(reads[to.String()], maps.Keys(leaves(t, readValues(t, dir, to)))) {
		target[path] = true
	}
	for _, from := range charts.Sample(table.Versions(), 7) {
		t.Run(from.String(), func(t *testing.T) {
			own, both := map[string]any{}, 0
			want := map[string]any{}
			for path, v := range leaves(t, readValues(t, dir, from)) {
				setAt(own, chart.ParsePath(path), otherValue(v))
				if target[path] {
					want[path] = otherValue(v)
				}
			}
			// keys that templates read but values.yaml does not list
			for _, path := range reads[from.String()] {
				p := chart.ParsePath(path)
				_, before := table.Default(from, path)
				_, after := table.Default(to, path)
				if _, ok := table.Key(p); ok && target[path] && !before && !after && table.Lookup(from, p).Status == chart.Known && !strings.Contains(path, "node-feature") {
					setAt(own, p, "users-own")
					want[p.String()] = "users-own"
				}
			}
			data, err := yaml.Marshal(own)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitAfter(string(data), "\n")
			text, comments := "", 0
			for i, line := range lines {
				if i%7 == 0 && strings.TrimSpace(line) != "" {
					indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
					text += fmt.Sprintf("%s# comment %d of the user\n", indent, i)
					comments++
				}
				text += line
			}
			m := migrated(t, text, from, to)
			have := leaves(t, m.YAML)
			for path, value := range want {
				both++
				kept(t, have, path, value, value)
			}
			if got := strings.Count(m.YAML, "of the user"); got != comments {
				t.Errorf("comments kept = %d, want %d", got, comments)
			}
			for _, c := range m.Changes {
				if c.Kind == "dropped" && c.Text == "" {
					t.Errorf("%s was dropped without a reason", c.Path)
				}
			}
			if both < 60 {
				t.Errorf("compared keys = %d, want at least 60", both)
			}
		})
	}
}

// Migration keeps values that equal the old release's default, because the user wrote them. If such a value cannot work
// in the new release, migration uses the new default.
func TestMigrationKeepsWhatEqualsADefault(t *testing.T) {
	dir := charts.Data(t)
	table := chart.Load()
	to := table.Latest()
	target := leaves(t, readValues(t, dir, to))
	for _, from := range charts.Sample(table.Versions(), 7) {
		t.Run(from.String(), func(t *testing.T) {
			text := readValues(t, dir, from)
			have := leaves(t, migrated(t, text, from, to).YAML)
			both := 0
			for path, value := range leaves(t, text) {
				now, read := target[path]
				if !read {
					continue
				}
				both++
				kept(t, have, path, value, now)
			}
			if both < 50 {
				t.Errorf("compared keys = %d, want at least 50", both)
			}
		})
	}
}

func TestMigrationSaysWhatEqualsADefault(t *testing.T) {
	const text = "migManager:\n  version: v0.5.5-ubuntu20.04\ngfd:\n  image: gpu-feature-discovery\n  version: v0.8.2-ubi8\n"
	m := migrated(t, text, release(t, "v23.9.0"), release(t, "v26.7.0"))
	const want = "migManager:\n  version: v0.5.5-ubuntu20.04\ngfd:\n  image: k8s-device-plugin\n  version: v0.20.0\n"
	if m.YAML != want {
		t.Errorf("values =\n%s\nwant\n%s", m.YAML, want)
	}
	if m.ChangesEffect() {
		t.Errorf("ChangesEffect = true, want false: %v", m.Changes)
	}
	for _, f := range m.Report.Findings {
		if f.Subject == "migManager.version" && strings.Contains(f.Reason, "it is the default of v23.9") {
			return
		}
	}
	t.Errorf("findings = %v, want one about migManager.version, which equals a default of v23.9", m.Report.Findings)
}

// TestMigratedText migrates values from v22.9.0.
func TestMigratedText(t *testing.T) {
	const umbrella = "global:\n  team: a # ours\ngpu-operator:\n  enabled: true\n%s  driver:\n    toolkit:\n      enabled: false\n"
	for _, tt := range []struct{ text, want string }{ // want is empty if nothing changes
		// in an umbrella chart, the operator's values stay in the group gpu-operator
		{fmt.Sprintf(umbrella, "  psp:\n    enabled: false\n"), fmt.Sprintf(umbrella, "")},
		// a renamed group is merged into an existing group with the new name
		{"driver:\n  rollingUpdate:\n    maxUnavailable: \"2\" # ours\ndaemonsets:\n  priorityClassName: high\n",
			"daemonsets:\n  priorityClassName: high\n  rollingUpdate:\n    maxUnavailable: \"2\" # ours\n"},
		// a key that no release had is not moved, even if its name is similar to a key of the chart
		{"validator:\n  toolkit:\n    enabled: false\n", ""},
		{"nodeStatusExporter:\n  toolkit:\n    enabled: false\n", ""},
		{"operator:\n  devicePlugin:\n    enabled: false\n", ""},
		{"dcgmExporter:\n  podAnnotations:\n    a: b\n", ""},
		{"drivr:\n  enabled: false\n", ""},
		{"containerToolkit:\n  enabled: false\n", ""},
		{"node-feature-discovery:\n  worker:\n    tolerations_: []\n", ""},
	} {
		want := tt.want
		if want == "" {
			want = tt.text
		}
		if m := migrated(t, tt.text, release(t, "v22.9.0"), release(t, "v26.7.0")); m.YAML != want {
			t.Errorf("values =\n%s\nwant\n%s", m.YAML, want)
		}
	}
}

// kept checks that a migration kept the value at a path, or replaced it with other.
func kept(t *testing.T, have map[string]any, path string, value, other any) {
	t.Helper()
	got, ok := have[path]
	for p := range have {
		if strings.HasPrefix(p, path+".") {
			return
		}
	}
	if text := fmt.Sprint(got); !ok || text != fmt.Sprint(value) && text != fmt.Sprint(other) {
		t.Errorf("%s: value %v was lost or became %v, want no change or %v", path, value, got, other)
	}
}

// The list of changes must have every changed default. The entry of driver.version must mention the new major version.
func TestMigrationListsChangedDefaults(t *testing.T) {
	dir := charts.Data(t)
	from, to := release(t, "v26.3.3"), release(t, "v26.7.0")
	before, after := leaves(t, readValues(t, dir, from)), leaves(t, readValues(t, dir, to))
	var changed []string
	for path, v := range after {
		if was, had := before[path]; had && fmt.Sprint(was) != fmt.Sprint(v) {
			changed = append(changed, path)
		}
	}
	if len(changed) != 18 {
		t.Fatalf("changed defaults in the charts = %d, want 18", len(changed))
	}
	m := migrated(t, "mig: {strategy: mixed}\n", from, to)
	got := map[string]string{}
	own := 0
	for _, c := range m.Changes {
		got[c.Kind+" "+c.Path] = c.Text
		if c.Kind == "default" && !strings.HasPrefix(c.Path, "node-feature-discovery") {
			own++
		}
	}
	for _, path := range changed {
		if _, ok := got["default "+path]; !ok {
			t.Errorf("changed default of %s is missing from the list", path)
		}
	}
	if own != 18 {
		t.Errorf("changed defaults in the list = %d, want 18", own)
	}
	if text := got["default driver.version"]; !strings.Contains(text, "major version") {
		t.Errorf("text of driver.version = %q, want it to mention the major version", text)
	}
}

func TestMigrationKeepsWhatIsNotProvenDead(t *testing.T) {
	const text = `toolkit:
  env:
    - {name: CONTAINERD_CONFIG, value: /etc/x}
    - {name: CONTAINERD_SOCKET, value: /run/x}
driver:
  version: 580.173.02
  licensingConfig:
    configMapName: licenses
  toolkit:
    enabled: false # as the vendor says
operator:
  nodeSelector: {pool: system}
node-feature-discovery:
  worker:
    config:
      core: {sleepInterval: 60s}
ourOwn: {x: 1}
`
	m := migrated(t, text, release(t, "v25.3.4"), release(t, "v26.7.0"))
	for _, keep := range []string{"CONTAINERD_CONFIG", "CONTAINERD_SOCKET", "580.173.02", "configMapName: licenses", "pool: system", "sleepInterval: 60s", "ourOwn", "  enabled: false # as the vendor says\n"} {
		if !strings.Contains(m.YAML, keep) {
			t.Errorf("%s is missing from\n%s", keep, m.YAML)
		}
	}
	var after struct {
		Toolkit struct{ Enabled *bool }
		Driver  map[string]any
	}
	if err := yaml.Unmarshal([]byte(m.YAML), &after); err != nil || after.Toolkit.Enabled != nil || after.Driver["toolkit"] == nil {
		t.Errorf("unknown key driver.toolkit.enabled was moved or removed, want no change; error = %v:\n%s", err, m.YAML)
	}
	if m.ChangesEffect() {
		t.Errorf("ChangesEffect = true, want false: %v", m.Changes)
	}
}

func TestDowngradeIsRefused(t *testing.T) {
	from, to := release(t, "v26.7.0"), release(t, "v26.3.3")
	if _, err := values.Migrate(chart.Load(), "v", []byte("mig: {strategy: mixed}\n"), from, to, false); !errors.Is(err, values.ErrDowngrade) {
		t.Errorf("error = %v, want ErrDowngrade", err)
	}
	if m, err := values.Migrate(chart.Load(), "v", []byte("mig: {strategy: mixed}\n"), from, to, true); err != nil || m.YAML == "" {
		t.Errorf("requested downgrade: error = %v, want values", err)
	}
}

// Migrating the chart's own values to the same release must change nothing.
func TestMigrationChangesNothingElse(t *testing.T) {
	dir := charts.Data(t)
	for _, v := range charts.Sample(chart.Load().Versions(), 7) {
		text := readValues(t, dir, v)
		if m := migrated(t, text, v, v); m.YAML != text || len(m.Changes) > 0 {
			t.Errorf("%s: changes = %v, want none; values (-want +got):\n%s", v, m.Changes, cmp.Diff(text, m.YAML))
		}
	}
}

// If the old release no longer had a key, the list says that it begins to take effect under its new name.
func TestMigrationListsWhatTakesEffect(t *testing.T) {
	const text = "driver:\n  rollingUpdate:\n    maxUnavailable: \"2\"\n"
	for from, want := range map[string]string{"v22.9.0": "renamed", "v23.9.0": "begins"} {
		m := migrated(t, text, release(t, from), release(t, "v26.7.0"))
		isListed := slices.ContainsFunc(m.Changes, func(c values.Change) bool {
			return c.Kind == want && strings.HasPrefix(c.Path, "driver.rollingUpdate")
		})
		if !isListed || m.ChangesEffect() != (want == "begins") {
			t.Errorf("from %s: changes = %+v, want the kind %s", from, m.Changes, want)
		}
	}
}
