package app

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// loadPlan reads what metrics are asked for, makes the plan that serves them,
// and returns it with the hash of the configuration that it came of. A line
// that cannot be used is told and left out; only a file without a usable line
// is an error.
func loadPlan(cfg *config.Config, log *slog.Logger) (*gpu.Plan, uint64, error) {
	requests, content, err := requests(cfg, log)
	if err != nil {
		return nil, 0, err
	}
	vocabulary, ok := counters.ParseVocabulary(string(cfg.Metrics.Vocabulary))
	if !ok {
		return nil, 0, fmt.Errorf("unknown vocabulary %q", cfg.Metrics.Vocabulary)
	}
	requests = counters.Translate(requests, vocabulary, etc.Shipped(content))
	names := make([]string, len(requests))
	for i, r := range requests {
		names[i] = r.Name
	}
	intervals, err := cfg.Intervals(names)
	if err != nil {
		return nil, 0, err
	}
	every := make(map[string]time.Duration, len(names))
	for i, name := range names {
		every[name] = intervals[i]
	}
	plan := counters.NewPlan(requests, counters.PlanOptions{
		Interval:   cfg.Collection.Interval,
		IntervalOf: func(name string) time.Duration { return every[name] },
		Devices:    cfg.Devices.GPUs,
		Switches:   cfg.Devices.Switches,
		CPUs:       cfg.Devices.CPUs,
	})
	return plan, cfg.Hash(content), nil
}

// requests returns what the YAML file, the counters file or the embedded
// default asks for, and the content of the counters file, if that is used.
func requests(cfg *config.Config, log *slog.Logger) (list []counters.Request, content []byte, err error) {
	if len(cfg.Metrics.Fields) > 0 {
		list, err = fieldRequests(cfg, log)
		return list, nil, err
	}
	name := cfg.Metrics.File
	content, err = os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && !cfg.Metrics.FileNamed {
		log.Info("No counters file was named and none lies at the default path; using the built-in one", "path", name)
		name, content, err = "built-in default-counters.csv", etc.Default(), nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("counters file: %w", err)
	}
	list, problems, err := counters.Parse(bytes.NewReader(content), name)
	for _, p := range problems {
		log.Warn("Counters file: " + p.Error())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("counters file: %w", err)
	}
	return list, content, nil
}

func fieldRequests(cfg *config.Config, log *slog.Logger) ([]counters.Request, error) {
	var list []counters.Request
	for _, f := range cfg.Metrics.Fields {
		typ, ok := counters.ParseType(f.Type)
		if !ok {
			log.Warn("Unknown metric type", "file", cfg.Path, "line", f.Line, "field", f.Name, "type", f.Type)
			continue
		}
		r, err := counters.NewRequest(f.Name, typ, f.Help)
		if err != nil {
			log.Warn("Unusable field", "file", cfg.Path, "line", f.Line, "error", err)
			continue
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: metrics.fields: %w", cfg.Path, counters.ErrNoCounters)
	}
	return list, nil
}

// watched lists the files whose change is a reload.
func watched(cfg *config.Config) []string {
	var files []string
	if cfg.Path != "" {
		files = append(files, cfg.Path)
	}
	if len(cfg.Metrics.Fields) == 0 {
		files = append(files, cfg.Metrics.File)
	}
	return files
}
