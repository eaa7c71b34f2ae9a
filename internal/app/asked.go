package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Asked is what a configuration asks for.
type Asked struct {
	// Name is the file, as messages name it.
	Name string
	// Requests are the usable lines, in the configured vocabulary.
	Requests []counters.Request
	// Problems are the lines that cannot be used, and warnings, each with its
	// line.
	Problems []counters.Problem
	// Advice is about lines that are used as they are written and would better
	// be written otherwise.
	Advice []counters.Problem
	// BuiltIn is set where nobody named a file, none lies at the default path,
	// and the embedded one stands in.
	BuiltIn bool
	// content is that of the counters file, nil where the fields are in the
	// YAML file.
	content []byte
}

// Ask reads what cfg asks for: the YAML file's fields, else the ConfigMap, else
// the counters file, else, where none was named and none lies at the default path, the built-in
// one. The error is for a file that cannot be read; one without a usable line
// is told by its problems alone.
func Ask(ctx context.Context, cfg *config.Config, readFile func(string) ([]byte, error)) (Asked, error) {
	if len(cfg.Metrics.Fields) > 0 {
		return askFields(cfg), nil
	}
	if cfg.Metrics.ConfigMap != (config.ConfigMapName{}) {
		return askConfigMap(ctx, cfg)
	}
	name := cfg.Metrics.File
	content, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) && !cfg.Metrics.FileNamed {
		asked, err := AskFile(cfg, "built-in "+etc.DefaultName, etc.Default())
		asked.BuiltIn = true
		return asked, err
	}
	if err != nil {
		return Asked{}, err
	}
	return AskFile(cfg, name, content)
}

// AskFile is Ask for the content of one counters file.
func AskFile(cfg *config.Config, name string, content []byte) (Asked, error) {
	requests, problems, err := counters.Parse(bytes.NewReader(content), name)
	if err != nil && !errors.Is(err, counters.ErrNoCounters) {
		return Asked{}, err
	}
	if err != nil && len(problems) == 0 {
		problems = []counters.Problem{{File: name, What: "the file holds no counter", Expected: "lines of FIELD, type, help"}}
	}
	return Asked{
		Name:     name,
		Requests: translate(cfg, requests, etc.Shipped(content)),
		Problems: problems,
		Advice:   counters.Lint(requests, name),
		content:  content,
	}, nil
}

func askFields(cfg *config.Config) Asked {
	asked := Asked{Name: cfg.Path}
	for _, f := range cfg.Metrics.Fields {
		var problem counters.Problem
		typ, ok := counters.ParseType(f.Type)
		if !ok {
			problem = counters.Problem{Text: f.Type, What: "unknown type", Expected: "counter, gauge, label or untyped"}
		}
		r, err := counters.NewRequest(f.Name, typ, f.Help)
		if ok && err != nil && !errors.As(err, &problem) {
			problem = counters.Problem{What: err.Error()}
		}
		if problem.What != "" {
			problem.File, problem.Line = cfg.Path, f.Line
			asked.Problems = append(asked.Problems, problem)
			continue
		}
		r.Line = f.Line
		asked.Requests = append(asked.Requests, r)
	}
	asked.Advice = counters.Lint(asked.Requests, cfg.Path)
	asked.Requests = translate(cfg, asked.Requests, false)
	return asked
}

func translate(cfg *config.Config, requests []counters.Request, shipped bool) []counters.Request {
	// The words of the flag are those of the catalogue; a test holds that.
	v, _ := catalog.ParseVocabulary(string(cfg.Metrics.Vocabulary))
	return counters.Translate(requests, v, shipped)
}

// Plan returns the plan that serves what was asked for, read every interval.
// The error is about the watch groups or the aggregates and says the line.
func (a Asked) Plan(cfg *config.Config, interval time.Duration) (*gpu.Plan, error) {
	names := make([]string, len(a.Requests))
	fields := make([][]string, len(a.Requests))
	for i, r := range a.Requests {
		names[i], fields[i] = r.Name, namesOf(r.Name)
	}
	intervals, err := cfg.Intervals(fields)
	if err != nil {
		return nil, err
	}
	bursts, err := a.aggregates(cfg, names, fields)
	if err != nil {
		return nil, err
	}
	every := make(map[string]time.Duration, len(names))
	for i, name := range names {
		every[name] = intervals[i]
	}
	return counters.NewPlan(a.Requests, counters.PlanOptions{
		Interval:   interval,
		IntervalOf: func(name string) time.Duration { return every[name] },
		Aggregate:  func(name string) bool { return bursts[name] },

		AggregateInterval: cfg.Collection.Aggregate.Interval,

		Devices:  devices(cfg),
		Switches: cfg.Devices.Switches,
		CPUs:     cfg.Devices.CPUs,
	}), nil
}

// namesOf returns a name and the one of the same field in the other vocabulary,
// if that has another.
func namesOf(name string) []string {
	names := []string{name}
	for _, v := range []catalog.Vocabulary{catalog.Classic, catalog.Current} {
		if _, other, ok := catalog.Rename(name, v); ok {
			names = append(names, other.Name)
		}
	}
	return names
}

// aggregates returns which of the names are shown with their extremes.
func (a Asked) aggregates(cfg *config.Config, names []string, fields [][]string) (map[string]bool, error) {
	lines, err := cfg.Aggregates(fields)
	if err != nil {
		return nil, err
	}
	bursts := make(map[string]bool)
	var errs []error
	for i, r := range a.Requests {
		if lines[i] == 0 {
			continue
		}
		bursts[r.Name] = true
		if err := r.CheckAggregate(func(name string) bool { return slices.Contains(names, name) }); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: collection.aggregate: %w", cfg.Path, lines[i], err))
		}
	}
	return bursts, errors.Join(errs...)
}

// watched lists the files whose change is a reload.
func watched(cfg *config.Config) []string {
	var files []string
	if cfg.Path != "" {
		files = append(files, cfg.Path)
	}
	if len(cfg.Metrics.Fields) == 0 && cfg.Metrics.ConfigMap == (config.ConfigMapName{}) {
		files = append(files, cfg.Metrics.File)
	}
	return files
}
