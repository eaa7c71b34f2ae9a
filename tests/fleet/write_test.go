package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/wait"
)

const integrations = "../../docs/integrations/"

// All recorded series and no others are written to remote storage with prometheus-recorded.yml.
func TestOnlyRecordedSeriesAreWritten(t *testing.T) {
	var config struct {
		RemoteWrite []struct {
			Relabel []*relabel.Config `yaml:"write_relabel_configs"`
		} `yaml:"remote_write"`
	}
	read(t, integrations+"prometheus-recorded.yml", &config)
	rules := config.RemoteWrite[0].Relabel
	for _, r := range rules {
		if err := r.Validate(model.UTF8Validation); err != nil {
			t.Fatal(err)
		}
	}
	written := func(series labels.Labels) bool {
		return relabel.ProcessBuilder(labels.NewBuilder(series), rules...)
	}
	var recording struct {
		Groups []struct{ Rules []struct{ Record string } }
	}
	read(t, "../../deployment/rules/recording.yml", &recording)
	for _, r := range recording.Groups[0].Rules {
		if !written(labels.FromStrings(model.MetricNameLabel, r.Record)) {
			t.Errorf("written(%s) = false, want true for a recorded series", r.Record)
		}
	}
	f, _ := serve(t, 3)
	for _, n := range f.nodes {
		for s := range prom.Samples(t, n.pages.Current().Bytes()) {
			if written(s.Labels) {
				t.Fatalf("%s: %s is written, want only recorded series", n.name, s.Series)
			}
		}
	}
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(folder.Read(t, file)), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// A Prometheus server with each configuration scrapes three nodes and writes to VictoriaMetrics. VictoriaMetrics must
// then have the series that the configuration selects, and no others.
func TestVictoriaMetricsAnswers(t *testing.T) {
	rules, err := filepath.Abs("../../deployment/rules/recording.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file, query string // the result of query must be 24, the number of GPUs
		none        string // a query that must return nothing
		flags       []string
	}{
		{"agent-victoriametrics.yml", `count(count by (UUID) (DCGM_FI_DEV_POWER_USAGE{cluster="gpu-1"}))`,
			`{cluster!="gpu-1"}`, []string{"--agent", "--storage.agent.path="}},
		{"prometheus-recorded.yml", `sum(cluster:gpus:count{cluster="gpu-1"})`, `{__name__!~".+:.+"}`,
			[]string{"--storage.tsdb.path="}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			prometheus, database := built(t, "prometheus"), built(t, "victoria-metrics")
			_, nodes := serve(t, 3)
			dir := t.TempDir()
			vm, err := start(t.Context(), database, "/health", filepath.Join(dir, "database.log"),
				func(address string) []string {
					return []string{"-storageDataPath=" + filepath.Join(dir, "database"), "-httpListenAddr=" + address,
						"-search.latencyOffset=0s"}
				})
			if err != nil {
				t.Fatal(err)
			}
			defer vm.ends()
			text := folder.Read(t, integrations+tt.file)
			const targets = "static_configs:\n      - targets: [gpu-node-1:9400, gpu-node-2:9400]"
			discovered := "honor_labels: true\n    http_sd_configs:\n      - url: " + nodes.URL + "/targets"
			for old, now := range map[string]string{
				targets: discovered, "http://victoriametrics:8428": vm.url, ": 30s": ": 1s",
			} {
				if !strings.Contains(text, old) {
					t.Fatalf("%s does not contain %q", tt.file, old)
				}
				text = strings.ReplaceAll(text, old, now)
			}
			text = strings.ReplaceAll(text, "/etc/prometheus/dcgm-exporter/*.yml", rules)
			file := filepath.Join(dir, "prometheus.yml")
			folder.Write(t, file, text)
			agent, err := start(t.Context(), prometheus, "/-/ready", filepath.Join(dir, "prometheus.log"),
				func(address string) []string {
					last := len(tt.flags) - 1
					return append([]string{"--config.file=" + file, "--web.listen-address=" + address,
						tt.flags[last] + filepath.Join(dir, "prometheus")}, tt.flags[:last]...)
				})
			if err != nil {
				t.Fatal(err)
			}
			defer agent.ends()
			if err := await(t.Context(), vm, tt.query, 24); err != nil {
				t.Fatal(err)
			}
			if answer, err := vm.ask(t.Context(), tt.none, 0); err != nil || number(answer) != 0 {
				t.Errorf("%s = %v, want no result (error %v)", tt.none, answer, err)
			}
		})
	}
}

// built returns the path of a program that is in PATH or that make scrapers has built. If there is none, it skips the
// test.
func built(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.Command("../manifests/scrapers.sh", name).Output()
	if err != nil {
		material.Skip(t, name+"-absent", fmt.Errorf("make scrapers builds it: %w", err))
	}
	return strings.TrimSpace(string(path))
}

// await repeats the query until it returns the wanted value, for at most a minute.
func await(ctx context.Context, p *program, query string, want float64) error {
	return wait.Until(time.Minute, func() error {
		answer, err := p.ask(ctx, query, 0)
		if err == nil && number(answer) != want {
			err = fmt.Errorf("%s = %v, want %v", query, answer, want)
		}
		return err
	})
}
