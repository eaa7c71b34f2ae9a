package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
)

// newKernelLog returns the reader of the kernel log at path, or nil if path is empty.
func (s *sources) newKernelLog(path string) *kernellog.Reader {
	if path == "" {
		return nil
	}
	return kernellog.New(s.kernelLogOptions(path))
}

// kernelLogOptions returns the options for the kernel log at path. Simulated GPUs have a simulated log, since this
// machine's log may have XIDs of real GPUs at the same bus address. The pod of a process that an XID has ended is known
// from previous reads.
func (s *sources) kernelLogOptions(path string) kernellog.Options {
	o := kernellog.Options{Path: path, Registerer: s.registry, Log: s.log, PodOf: s.pods.CachedPodOf}
	if source := s.simulated; source != nil {
		o.Path = "simulated"
		o.Open = func() (kernellog.Device, error) { return source.KernelLog(), nil }
		o.PodOf = source.PodOf
	}
	o.PodOf = s.kubernetes.podOf(o.PodOf)
	return o
}

// derivers compute the families that are not DCGM fields. Their state survives reloads.
type derivers struct {
	facts          snapshot.Facts
	events         *events.Log
	accountant     *accounting.Accountant
	accountsHidden bool // no family shows the accounts
	judge          verdict.Judge
}

// newDerivers returns the derivers of events and, if requested, of accounting and virtual GPUs.
func newDerivers(opt events.Options, accounts, virtual bool, reg prometheus.Registerer) *derivers {
	opt.Registerer = reg
	return &derivers{
		facts:          snapshot.Facts{Booted: time.Now().Add(-kernellog.Uptime())},
		events:         events.New(opt),
		accountant:     accounting.New(accounting.Options{VirtualGPUs: virtual, Registerer: reg}),
		accountsHidden: !accounts && !virtual,
	}
}

// settings returns the settings of the collector for a plan and a source, with the derivers in page order.
func (d *derivers) settings(plan *gpu.Plan, from Backend) collector.Settings {
	s := collector.Settings{
		Source: from.Source, Plan: plan, Attributors: from.Attributors,
		Derivers: []snapshot.Deriver{&d.facts, d.events},
	}
	if len(from.Attributors) > 0 && !d.accountsHidden {
		s.Plan = accounting.Extend(plan)
		s.Derivers = append(s.Derivers, d.accountant.Deriver(from.PodOf))
	}
	s.Derivers = append(s.Derivers, &d.judge)
	return s
}
