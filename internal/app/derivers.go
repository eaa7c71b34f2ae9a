package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// derivers are what makes families that no field is. What they know outlives
// reloads.
type derivers struct {
	events     *events.Log
	accountant *accounting.Accountant
	unasked    bool // for accounts: no family shows them
}

// newDerivers returns those that make events, and accounts or a copy per virtual
// GPU where they are asked for.
func newDerivers(log events.Options, accounts, virtual bool, reg prometheus.Registerer) *derivers {
	log.Registerer = reg
	return &derivers{
		events:     events.New(log),
		accountant: accounting.New(accounting.Options{VirtualGPUs: virtual, Registerer: reg}),
		unasked:    !accounts && !virtual,
	}
}

// change returns what the loop collects for a plan from a source, with every
// deriver that has something to derive, in the order of the page.
func (d *derivers) change(plan *gpu.Plan, from Chosen) collector.Change {
	c := collector.Change{
		Source: from.Source, Plan: plan, Attributors: from.Attributors,
		Derivers: []snapshot.Deriver{&snapshot.Facts{}, d.events},
	}
	if len(from.Attributors) > 0 && !d.unasked {
		c.Plan = accounting.Extend(plan)
		c.Derivers = append(c.Derivers, d.accountant.Deriver(from.PodOf))
	}
	c.Derivers = append(c.Derivers, from.Derivers...) // after the accountant, which asks for its processes alone
	return c
}
