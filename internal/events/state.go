package events

import (
	"maps"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events/statefile"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// state returns what a later process needs to go on counting.
func (l *tally) state() *statefile.State {
	s := &statefile.State{Version: statefile.Version, KernelLog: l.position}
	for _, key := range slices.Sorted(maps.Keys(l.gpus)) {
		g := l.gpus[key]
		if g.uuid == "" {
			continue
		}
		kept := statefile.GPU{UUID: g.uuid, PCIBusID: g.pci, LastXID: g.told.newest}
		for i := range g.sets {
			set := &g.sets[i]
			o := statefile.Owner{}
			for _, x := range set.owner {
				o.Labels = append(o.Labels, statefile.Label{Name: x.Name, Value: x.Value})
			}
			for _, c := range set.counts {
				if c.count > 0 {
					o.XIDs = append(o.XIDs, statefile.XID{Code: c.code, Count: c.count, Last: c.last})
				}
			}
			if len(o.XIDs) > 0 {
				kept.Owners = append(kept.Owners, o)
			}
		}
		for _, u := range g.unpaired {
			kept.Unpaired = append(kept.Unpaired, statefile.Unpaired{Kernel: u.kernel, Code: u.code, Count: u.count, From: u.from, To: u.to})
		}
		for _, e := range g.clock.events {
			if e.count > 0 || e.held > 0 {
				kept.Clock = append(kept.Clock, statefile.Clock{Event: e.labels[0].Value, Count: e.count, Nanoseconds: e.held})
			}
		}
		s.GPUs = append(s.GPUs, kept)
	}
	return s
}

// restore goes on from what an earlier process kept.
func (l *tally) restore(s *statefile.State, now int64) {
	for i := range s.GPUs {
		kept := &s.GPUs[i]
		// A time to come is that of a clock that was wrong.
		g := &gpuEvents{uuid: kept.UUID, pci: kept.PCIBusID, told: seenUntil{newest: min(kept.LastXID, now)}, sets: make([]ownerSet, 1)}
		for _, o := range kept.Owners {
			var labels []gpu.Label
			for _, x := range o.Labels {
				labels = append(labels, gpu.Label{Name: x.Name, Value: x.Value})
			}
			labels = sortedLabels(labels)
			for _, x := range o.XIDs {
				g.set(labels, x.Last).add(x.Code, x.Count, x.Last)
			}
		}
		for _, u := range kept.Unpaired[:min(len(kept.Unpaired), maxUnpaired)] {
			g.unpaired = append(g.unpaired, unpaired{kernel: u.Kernel, code: u.Code, count: u.Count, from: u.From, to: u.To, seen: now})
		}
		for _, c := range kept.Clock {
			if e := g.clock.named(c.Event); e != nil {
				e.count, e.held = c.Count, c.Nanoseconds
			}
		}
		l.gpus[kept.UUID] = g
	}
}
