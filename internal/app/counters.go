package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
)

// A CounterSet is the content of a counters file, or of another source of counters.
type CounterSet struct {
	Name     string             // name of the file in messages
	Requests []counters.Request // the usable lines, in the configured vocabulary
	Problems []counters.Problem // warnings, and lines that cannot be used
	Advice   []counters.Problem // about lines that are used as written but should be written differently
	content  []byte             // of the counters file; nil if the fields are in the YAML file
	builtIn  bool               // no file is configured, and none exists at the default path
}

// LoadCounters reads the counters of cfg: those of the YAML file, else the ConfigMap, else the counters file, else the
// built-in file. It returns an error if a file cannot be read. A file without a usable line is not an error; its
// Problems say why.
func LoadCounters(ctx context.Context, cfg *config.Config, readFile func(string) ([]byte, error)) (CounterSet, error) {
	if len(cfg.Metrics.Fields) > 0 {
		return fieldCounters(cfg), nil
	}
	if usesConfigMap(cfg) {
		return configMapCounters(ctx, cfg)
	}
	name := cfg.Metrics.File
	content, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) && !cfg.Metrics.FileNamed {
		set, err := ParseCounters(cfg, "built-in "+etc.DefaultName, etc.Default())
		set.builtIn = true
		return set, err
	}
	if err != nil {
		return CounterSet{}, err
	}
	return ParseCounters(cfg, name, content)
}

// ParseCounters is like LoadCounters for the content of a counters file.
func ParseCounters(cfg *config.Config, name string, content []byte) (CounterSet, error) {
	requests, problems, err := counters.Parse(bytes.NewReader(content), name)
	if err != nil && !errors.Is(err, counters.ErrNoCounters) {
		return CounterSet{}, err
	}
	if err != nil && len(problems) == 0 {
		problems = []counters.Problem{{File: name, What: "no counters found", Expected: "lines of FIELD, type, help"}}
	}
	return CounterSet{
		Name: name, Problems: problems, content: content,
		Requests: counters.Translate(requests, cfg.Metrics.Vocabulary, etc.Shipped(content)),
		Advice:   advice(cfg, requests, name),
	}, nil
}

// advice returns warnings about the counters file. One of them is that the verdict is requested without the families
// that it needs: it is then unknown.
func advice(cfg *config.Config, requests []counters.Request, file string) []counters.Problem {
	problems := counters.Lint(requests, file)
	index := func(name string) int {
		return slices.IndexFunc(requests, func(r counters.Request) bool { return r.Name == name })
	}
	at := index(catalog.GPUVerdict)
	lacking := slices.DeleteFunc(verdict.Families(), func(name string) bool { return index(name) >= 0 })
	if at < 0 || len(lacking) == 0 || CompatOptions(cfg).Strict {
		return problems
	}
	const because = `(reason="` + verdict.NoCounters + `")`
	return append(problems, counters.Problem{
		File: file, Line: requests[at].Line, Text: catalog.GPUVerdict, Warning: true,
		What:     "the verdict is unknown " + because + " unless a GPU must be drained or replaced",
		Expected: "lines for " + strings.Join(lacking, ", "),
	})
}

func fieldCounters(cfg *config.Config) CounterSet {
	set := CounterSet{Name: cfg.Path}
	for _, f := range cfg.Metrics.Fields {
		typ, ok := counters.ParseType(f.Type)
		r, err := counters.NewRequest(f.Name, typ, f.Help)
		if !ok {
			err = counters.Problem{Text: f.Type, What: "unknown type", Expected: "counter, gauge, label or untyped"}
		}
		if err != nil {
			problem := counters.Problem{What: err.Error()}
			errors.As(err, &problem)
			problem.File, problem.Line = cfg.Path, f.Line
			set.Problems = append(set.Problems, problem)
			continue
		}
		r.Line = f.Line
		set.Requests = append(set.Requests, r)
	}
	set.Advice = advice(cfg, set.Requests, cfg.Path)
	set.Requests = counters.Translate(set.Requests, cfg.Metrics.Vocabulary, false)
	return set
}

// Plan returns the plan of the requests with the given interval. Errors are about watch groups and name the line.
func (a CounterSet) Plan(cfg *config.Config, interval time.Duration) (*gpu.Plan, error) {
	fields := make([][]string, len(a.Requests))
	for i, r := range a.Requests {
		fields[i] = namesOf(r.Name)
	}
	intervals, err := cfg.Intervals(fields)
	if err != nil {
		return nil, err
	}
	page := CompatOptions(cfg)
	var served []counters.Request
	for i, r := range a.Requests {
		if r.Interval = intervals[i]; !page.Omits(r.Family) {
			served = append(served, r)
		}
	}
	return counters.NewPlan(served, gpu.Plan{
		Interval: interval, Devices: page.Reads(), Switches: cfg.Devices.Switches, CPUs: cfg.Devices.CPUs,
		KeepContradicted: page.Strict,
	}), nil
}

// namesOf returns the name and, if the field has another name in the other vocabulary, that name too.
func namesOf(name string) []string {
	names := []string{name}
	for _, v := range []catalog.Vocabulary{catalog.Classic, catalog.Current} {
		if _, other, ok := catalog.Rename(name, v); ok {
			names = append(names, other.Name)
		}
	}
	return names
}

// watched returns the files whose change triggers a reload.
func watched(cfg *config.Config) (files []string) {
	if cfg.Path != "" {
		files = append(files, cfg.Path)
	}
	if len(cfg.Metrics.Fields) == 0 && !usesConfigMap(cfg) {
		files = append(files, cfg.Metrics.File)
	}
	if scenario := cfg.Source.Sim.Scenario; scenario != "" {
		files = append(files, scenario)
	}
	return files
}

// loadPlan returns the plan of the requested metrics and the hash of the configuration. Unusable lines are logged and
// skipped. A file without any usable line is an error.
func loadPlan(
	ctx context.Context, cfg *config.Config, read func(string) ([]byte, error), log *slog.Logger,
) (plan *gpu.Plan, hash uint64, err error) {
	set, err := LoadCounters(ctx, cfg, read)
	if err != nil {
		return nil, 0, fmt.Errorf("counters file: %w", err)
	}
	if set.builtIn {
		log.Info("No counters file at the default path; using the built-in one", "path", cfg.Metrics.File)
	}
	for _, p := range set.Problems {
		log.Warn("Counters: " + p.Error())
	}
	if len(set.Requests) == 0 {
		return nil, 0, fmt.Errorf("counters file: %s: %w", set.Name, counters.ErrNoCounters)
	}
	plan, err = set.Plan(cfg, cfg.Collection.Interval)
	return plan, cfg.Hash(set.content), err
}

// startingPlan is loadPlan for the start of the process. If the ConfigMap of the counters cannot be read because there
// is no API server or it does not answer, it returns the plan of the counters file, as NVIDIA's exporter does. If the
// server may answer later, pending is true.
func startingPlan(
	ctx context.Context, cfg *config.Config, read func(string) ([]byte, error), log *slog.Logger,
) (plan *gpu.Plan, hash uint64, pending bool, err error) {
	plan, hash, err = loadPlan(ctx, cfg, read, log)
	pending = errors.Is(err, gpu.ErrUnavailable)
	if !usesConfigMap(cfg) || !pending && !errors.Is(err, kube.ErrNoCluster) {
		return plan, hash, false, err
	}
	log.Warn("Cannot read the counters ConfigMap; using the counters file", "retries", pending, "error", err)
	fileOnly := *cfg
	fileOnly.Metrics.ConfigMap = config.ConfigMapName{}
	plan, hash, err = loadPlan(ctx, &fileOnly, read, log)
	return plan, hash, pending, err
}

// usesConfigMap reports whether a ConfigMap holds the counters.
func usesConfigMap(cfg *config.Config) bool {
	return cfg.Metrics.ConfigMap != (config.ConfigMapName{}) && len(cfg.Metrics.Fields) == 0
}

func configMap(cfg *config.Config, report func(string, error)) (*kube.ConfigMap, error) {
	client, err := kube.New(kube.Options{Kubeconfig: filepath.SplitList(cfg.Kubernetes.Kubeconfig), Report: report})
	if err != nil {
		return nil, err
	}
	name := cfg.Metrics.ConfigMap
	return client.ConfigMap(name.Namespace, name.Name, "metrics"), nil
}

func configMapCounters(ctx context.Context, cfg *config.Config) (CounterSet, error) {
	m, err := configMap(cfg, nil)
	if err != nil {
		return CounterSet{}, err
	}
	content, err := m.Await(ctx, 5*time.Second) // a start or reload must not wait for long
	if err != nil {
		return CounterSet{}, retryable{err}
	}
	return ParseCounters(cfg, fmt.Sprintf("ConfigMap %s:%s", m.Namespace, m.Name), content)
}

// followConfigMap calls changed whenever the ConfigMap of the counters changes, until ctx is done. It returns at once
// if there is no cluster.
func followConfigMap(ctx context.Context, cfg *config.Config, log *slog.Logger, changed func()) {
	m, err := configMap(cfg, func(_ string, err error) {
		if err != nil {
			log.Warn("Cannot read the counters ConfigMap; keeping the previous counters", "error", err)
		}
	})
	if err == nil {
		m.Follow(ctx, changed)
	}
}
