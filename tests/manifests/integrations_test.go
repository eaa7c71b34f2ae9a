package manifests

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

const integrations = "../../docs/integrations/"

// TestPrometheusAcceptsSnippets checks that promtool accepts the documented configurations of Prometheus and vmagent.
func TestPrometheusAcceptsSnippets(t *testing.T) {
	promtool := prom.Promtool(t)
	for _, name := range []string{
		"prometheus.yml", "prometheus-kubernetes.yml", "prometheus-recorded.yml", "vmagent.yml",
		"prometheus-agent.yml", "agent-victoriametrics.yml", "agent-thanos.yml", "agent-mimir.yml",
	} {
		args := []string{"check", "config"}
		if strings.HasPrefix(name, "agent-") || name == "prometheus-agent.yml" {
			args = append(args, "--agent")
		}
		file := integrations + name
		if name == "prometheus-kubernetes.yml" {
			file = withoutDiscovery(t, file)
		}
		if out, err := exec.Command(promtool, append(args, file)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestProgramsAcceptSnippets checks that vmagent, vmalert and the OpenTelemetry Collector accept our files, and reject
// a copy with a deliberate error. Datadog's agent cannot be built here; TestDatadogPatterns checks its files.
func TestProgramsAcceptSnippets(t *testing.T) {
	for _, tt := range []struct {
		program, file, right, wrong string
		args                        []string // arguments before the file name
	}{
		{"vmagent", integrations + "vmagent.yml", "static_configs", "static_confgs",
			[]string{"-dryRun", "-promscrape.config.strictParse", "-promscrape.config"}},
		{"vmalert", "../../deployment/rules/alerts-gpu.yml", "max_over_time(", "max_over_tim(",
			[]string{"-dryRun", "-rule"}},
		{"vmalert", "../../deployment/rules/alerts-exporter.yml", "expr:", "exprs:", []string{"-dryRun", "-rule"}},
		{"vmalert", "../../deployment/rules/recording.yml", "record:", "records:", []string{"-dryRun", "-rule"}},
		{"otelcol", integrations + "otel-collector.yaml", `set(unit, "W")`, `sett(unit, "W")`,
			[]string{"validate", "--config"}},
		{"otelcol", integrations + "otel-collector.yaml", "[filter/gpu, transform/gpu]", "[filter/gpus, transform/gpu]",
			[]string{"validate", "--config"}},
	} {
		t.Run(tt.program+" "+filepath.Base(tt.file), func(t *testing.T) {
			path, err := exec.Command("./scrapers.sh", tt.program).Output()
			if err != nil {
				material.Skip(t, tt.program+"-absent", fmt.Errorf("run make scrapers: %w", err))
			}
			judge := func(file string) ([]byte, error) {
				args := append(slices.Clone(tt.args[:len(tt.args)-1]), tt.args[len(tt.args)-1]+"="+file)
				return exec.Command(strings.TrimSpace(string(path)), args...).CombinedOutput()
			}
			if out, err := judge(tt.file); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			text := folder.Read(t, tt.file)
			if !strings.Contains(text, tt.right) {
				t.Fatalf("%s does not contain %q", tt.file, tt.right)
			}
			broken := filepath.Join(t.TempDir(), filepath.Base(tt.file))
			folder.Write(t, broken, strings.Replace(text, tt.right, tt.wrong, 1))
			if out, err := judge(broken); err == nil {
				t.Errorf("file with %s was accepted, want an error:\n%s", tt.wrong, out)
			}
		})
	}
}

// withoutDiscovery returns a copy of a file without Kubernetes discovery, which Debian's Prometheus does not support.
func withoutDiscovery(t *testing.T, file string) string {
	t.Helper()
	text := folder.Read(t, file)
	const discovery = "    kubernetes_sd_configs:\n      - role: pod\n"
	if n := strings.Count(text, discovery); n != 1 {
		t.Fatalf("%s has the following lines %d times, want once:\n%s", file, n, discovery)
	}
	copied := filepath.Join(t.TempDir(), filepath.Base(file))
	folder.Write(t, copied, strings.Replace(text, discovery, "", 1))
	return copied
}

// TestSnippetsAreDocumented checks that docs/dashboards.md links every file in docs/integrations.
func TestSnippetsAreDocumented(t *testing.T) {
	page := folder.Read(t, "../../docs/dashboards.md")
	for _, f := range folder.Files(t, integrations+"*") {
		if !strings.Contains(page, "(integrations/"+filepath.Base(f)+")") {
			t.Errorf("docs/dashboards.md does not name %s", f)
		}
	}
}

// TestOpenTelemetryUnits checks that each renamed metric is in the catalog, and that the factor converts its unit to
// the unit in the snippet. The filter must keep exactly the renamed metrics.
func TestOpenTelemetryUnits(t *testing.T) {
	text := folder.Read(t, integrations+"otel-collector.yaml")
	find := func(pattern string) map[string]string {
		found := map[string]string{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found[m[2]] = m[1]
		}
		return found
	}
	factors := find(`value_double ([/*] \d+)\) where metric\.name == "(\w+)"`)
	units, names := find(`set\(unit, "(\w+)"\) where name == "(\w+)"`),
		find(`set\(name, "([\w.]+)"\) where name == "(\w+)"`)
	if len(names) == 0 || len(names) != len(units) {
		t.Fatalf("names = %v, units = %v; want as many names as units", names, units)
	}
	// the UCUM unit, as OpenTelemetry writes it, and the conversion to it
	want := map[gpu.Unit][2]string{
		catalog.Percent: {"1", "/ 100"}, catalog.Mebibytes: {"By", "* 1048576"}, catalog.Watts: {"W", ""},
		catalog.Celsius: {"Cel", ""}, catalog.Millijoules: {"J", "/ 1000"},
	}
	filter := regexp.MustCompile(`\^\(([\w|]+)\)\$`).FindStringSubmatch(text)
	for name := range names {
		n, ok := catalog.Lookup(name)
		if !ok {
			t.Errorf("catalog has no metric %s", name)
			continue
		}
		if got := [2]string{units[name], factors[name]}; got != want[n.Unit] {
			t.Errorf("%s (%s): unit and factor = %q, want %q", name, n.Unit, got, want[n.Unit])
		}
		if len(filter) == 0 || !strings.Contains("|"+filter[1]+"|", "|"+name+"|") {
			t.Errorf("filter drops %s, which has a new name; want it kept", name)
		}
	}
	if len(filter) > 0 && strings.Count(filter[1], "|")+1 != len(names) {
		t.Errorf("filter keeps %s, want only the %d metrics with new names", filter[1], len(names))
	}
}

// TestDatadogPatterns checks that each pattern matches a family in docs/metrics.md.
func TestDatadogPatterns(t *testing.T) {
	served := folder.Read(t, "../../docs/metrics.md")
	for _, file := range []string{"datadog.yaml", "datadog-dcgm.yaml"} {
		var conf struct {
			Instances []struct {
				Endpoint     string `yaml:"openmetrics_endpoint"`
				Metrics      []string
				ExtraMetrics []string `yaml:"extra_metrics"`
			}
		}
		if err := yaml.Unmarshal([]byte(folder.Read(t, integrations+file)), &conf); err != nil ||
			len(conf.Instances) != 1 {
			t.Fatal(file, err, conf)
		}
		one := conf.Instances[0]
		patterns := append(one.Metrics, one.ExtraMetrics...)
		if one.Endpoint != "http://localhost:9400/metrics" || len(patterns) < 4 {
			t.Errorf("%s: instance = %+v, want the exporter's address and at least 4 patterns", file, one)
		}
		for _, pattern := range patterns {
			if !regexp.MustCompile("`" + strings.TrimPrefix(pattern, "^") + "`").MatchString(served) {
				t.Errorf("%s: no family matches %s", file, pattern)
			}
		}
	}
}
