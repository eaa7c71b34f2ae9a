package events

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A clockEvent is how often one reason began to hold the clocks, and for how
// long it did.
type clockEvent struct {
	mask        int64
	labels      []gpu.Label // clock_event
	count, held int64       // held in nanoseconds
}

// clockEvents are all reasons of one GPU, and its latest sample.
type clockEvents struct {
	events []clockEvent
	mask   int64
	at     int64 // 0 before the first sample
}

func (c *clockEvents) init() {
	if c.events != nil {
		return
	}
	for e := range catalog.ClockEvents(-1) {
		c.events = append(c.events, clockEvent{mask: e.Mask, labels: []gpu.Label{{Name: "clock_event", Value: e.Name}}})
	}
}

// add takes a sample and reports whether it was new. The time since the one
// before counts for the reasons that were set then, unless it is longer than
// limit: nobody knows what was in between.
func (c *clockEvents) add(mask, at, limit int64) bool {
	c.init()
	if at <= c.at {
		return false
	}
	for i := range c.events {
		e := &c.events[i]
		if c.at > 0 && mask&^c.mask&e.mask != 0 {
			e.count++
		}
		if gap := at - c.at; c.mask&e.mask != 0 && gap <= limit {
			e.held += gap
		}
	}
	c.mask, c.at = mask, at
	return true
}

// named returns the event of that name, nil where there is none.
func (c *clockEvents) named(name string) *clockEvent {
	c.init()
	i := slices.IndexFunc(c.events, func(e clockEvent) bool { return e.labels[0].Value == name })
	if i < 0 {
		return nil
	}
	return &c.events[i]
}
