package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/statefile"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// lastWrite bounds how long the end of the process waits for the disk.
const lastWrite = 500 * time.Millisecond

// eventMemory is what events are read from beside the driver, and kept in: nothing unless it is
// requested.
type eventMemory struct {
	kept   *events.State
	writer *statefile.Writer[events.State]
	reader *kernellog.Reader

	over   context.Context // until the collector has ended
	finish context.CancelFunc
}

func newEventMemory(c config.Collection, reg prometheus.Registerer, log *slog.Logger, sources *sources) *eventMemory {
	m := &eventMemory{}
	m.over, m.finish = context.WithCancel(context.Background())
	var after kernellog.Position
	if c.StateFile != "" {
		if m.writer, m.kept = statefile.Open(c.StateFile, events.Form(), reg, log); m.kept != nil {
			after = kernellog.ParsePosition(m.kept.KernelLog)
		}
	}
	if c.KernelLog != "" {
		options := kernellog.Options{Path: c.KernelLog, After: after, Registerer: reg, Log: log}
		sources.kernelOf(&options)
		m.reader = kernellog.New(options)
	}
	return m
}

// kernelOf makes the options speak of the kernel that goes with the source: made-up GPUs have a
// made-up kernel. The log of this machine would report XIDs of other GPUs that happen to have the
// same bus. The pod of a process is found as it is for the reads, which
// knew those that an XID has ended.
func (s *sources) kernelOf(o *kernellog.Options) {
	o.PodOf = s.pods.Recall
	if source := s.simulated; source != nil {
		o.Path = "simulated"
		o.Open = func() (kernellog.Device, error) { return source.KernelLog(), nil }
		o.Boot, o.Uptime, o.PodOf = source.KernelBoot, source.KernelUptime, source.PodOf
	}
	o.PodOf = s.kubernetes.podOf(o.PodOf)
}

// xids returns the second witness of XIDs, nil where there is none.
func (m *eventMemory) xids() events.KernelLog {
	if m.reader == nil {
		return nil // not a nil pointer in an interface
	}
	return m.reader
}

func (m *eventMemory) save() func(*events.State) {
	if m.writer == nil {
		return nil
	}
	return m.writer.Save
}

// run reads the kernel's log until ctx is done, and writes the state until the collector has ended
// and its last word is on disk.
func (m *eventMemory) run(ctx context.Context) {
	var tasks sync.WaitGroup
	if m.reader != nil {
		tasks.Go(func() { m.reader.Run(ctx) })
	}
	if m.writer != nil {
		written := make(chan struct{})
		go func() {
			defer close(written)
			m.writer.Run(m.over)
		}()
		<-m.over.Done()
		select {
		case <-written:
		case <-time.After(lastWrite): // a disk that hangs must not keep the process
		}
	}
	tasks.Wait()
}

// derivers are what makes families that no field is. What they know outlives reloads.
type derivers struct {
	events         *events.Log
	accountant     *accounting.Accountant
	accountsHidden bool // for accounts: no family shows them
}

// newDerivers returns those that make events, and accounts or a copy per virtual GPU where they are
// requested.
func newDerivers(opt events.Options, accounts, virtual bool, reg prometheus.Registerer) *derivers {
	opt.Registerer = reg
	return &derivers{
		events:         events.New(opt),
		accountant:     accounting.New(accounting.Options{VirtualGPUs: virtual, Registerer: reg}),
		accountsHidden: !accounts && !virtual,
	}
}

// change returns what the loop collects for a plan from a source, with every deriver that has
// something to derive, in the order of the page.
func (d *derivers) change(plan *gpu.Plan, from Backend) collector.Change {
	c := collector.Change{
		Source: from.Source, Plan: plan, Attributors: from.Attributors,
		Derivers: []snapshot.Deriver{&snapshot.Facts{}, d.events},
	}
	if len(from.Attributors) > 0 && !d.accountsHidden {
		c.Plan = accounting.Extend(plan)
		c.Derivers = append(c.Derivers, d.accountant.Deriver(from.PodOf))
	}
	return c
}
