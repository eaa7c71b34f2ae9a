// Package loop creates a collector.Loop with all derivers of families, as the exporter does. It is for tests that have
// a source and check its snapshots.
package loop

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
)

// Options are the options of the Loop and its derivers. New replaces Settings.Derivers.
type Options struct {
	collector.Options
	PodOf        accounting.PodOf
	VirtualGPUs  bool
	KernelLog    events.KernelLog
	OwnersOnInfo bool
	Strict       bool      // strict compatibility mode: data as NVIDIA's exporter reports it
	Booted       time.Time // when the machine booted
	Start        time.Time // when the process started; XIDs from before are not counted, and zero counts all
}

// A Loop is a collector.Loop with its derivers.
type Loop struct {
	*collector.Loop
	podOf      accounting.PodOf
	facts      snapshot.Facts
	events     *events.Log
	accountant *accounting.Accountant
	judge      verdict.Judge
}

// New returns a Loop. If there are attributors, it adds to the plan the fields that accounting needs.
func New(o Options) *Loop {
	l := &Loop{
		podOf: o.PodOf, facts: snapshot.Facts{AsReported: o.Strict, Booted: o.Booted},
		events: events.New(events.Options{
			Start: o.Start, KernelLog: o.KernelLog, LastXIDAsStored: o.Strict, OwnersOnInfo: o.OwnersOnInfo,
			Registerer: o.Registerer,
		}),
		accountant: accounting.New(o.Registerer, o.VirtualGPUs),
	}
	o.Settings = l.with(o.Settings)
	l.Loop = collector.New(o.Options)
	return l
}

// with returns s with the derivers, and with the plan that they need.
func (l *Loop) with(s collector.Settings) collector.Settings {
	s.Derivers = []snapshot.Deriver{&l.facts, l.events}
	if len(s.Attributors) > 0 {
		s.Plan = accounting.Extend(s.Plan)
		s.Derivers = append(s.Derivers, l.accountant.Deriver(l.podOf))
	}
	s.Derivers = append(s.Derivers, &l.judge)
	return s
}

// Reload reloads the Loop. The derivers keep their state.
func (l *Loop) Reload(ctx context.Context, s collector.Settings) error {
	return l.Loop.Reload(ctx, l.with(s))
}

// AppendGathered appends the metrics of a registry to a page, like the exporter does for its own metrics. If Gather
// fails, it appends what was gathered and returns the error.
func AppendGathered(dst []byte, from prometheus.Gatherer) ([]byte, error) {
	families, err := from.Gather()
	b := bytes.NewBuffer(dst)
	enc := expfmt.NewEncoder(b, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		err = errors.Join(err, enc.Encode(f))
	}
	return b.Bytes(), err
}
