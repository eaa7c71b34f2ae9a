package events

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events/statefile"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxKept bounds the reports of an engine that are kept for another process.
const maxKept = 1024

// state returns what a later process needs to go on counting.
func (l *Log) state() *statefile.State {
	s := &statefile.State{Version: statefile.Version, KernelLog: l.ledger.position}
	for id, a := range l.ledger.accounts {
		if id.Kind == gpu.KindGPU && a.uuid != "" {
			s.GPUs = append(s.GPUs, a.state(&l.clock))
		}
	}
	slices.SortFunc(s.GPUs, func(a, b statefile.GPU) int { return strings.Compare(a.UUID, b.UUID) })
	return s
}

func (a *account) state(k *clock) statefile.GPU {
	kept := statefile.GPU{UUID: a.uuid, PCIBusID: a.pci, LastXID: a.reported}
	r := &a.reports[gpu.WitnessEngine]
	kept.Reports = r.state()
	for i := range a.owners.sets {
		set := &a.owners.sets[i]
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
	for _, u := range a.pairs.waiting {
		kept.Unpaired = append(kept.Unpaired, statefile.Unpaired{
			Kernel: u.kernel, Code: u.code, Count: u.count, From: k.wall(u.from), To: k.wall(u.to),
		})
	}
	for _, e := range a.reasons.events {
		if e.count > 0 || e.held > 0 {
			kept.Clock = append(kept.Clock, statefile.Clock{Event: e.labels[0].Value, Count: e.count, Nanoseconds: e.held})
		}
	}
	return kept
}

// restore goes on from what an earlier process kept.
func (l *Log) restore(s *statefile.State) {
	k := &l.clock
	for i := range s.GPUs {
		kept := &s.GPUs[i]
		a := &account{uuid: kept.UUID, pci: kept.PCIBusID}
		// A time to come is that of a clock that was wrong.
		a.reported = min(kept.LastXID, k.wall(k.now))
		a.reports[gpu.WitnessEngine].restore(kept.Reports)
		for _, o := range kept.Owners {
			var labels []gpu.Label
			for _, x := range o.Labels {
				labels = append(labels, gpu.Label{Name: x.Name, Value: x.Value})
			}
			labels = sortedLabels(labels)
			for _, x := range o.XIDs {
				a.owners.set(labels, k.of(x.Last)).add(x.Code, x.Count, x.Last, k.wall(k.now))
			}
		}
		for _, u := range kept.Unpaired[:min(len(kept.Unpaired), maxUnpaired)] {
			a.pairs.waiting = append(a.pairs.waiting, unpaired{
				kernel: u.Kernel, code: u.Code, count: u.Count, from: k.of(u.From), to: k.of(u.To), seen: k.now,
			})
		}
		for _, c := range kept.Clock {
			if e := a.reasons.named(c.Event); e != nil {
				e.count, e.held = c.Count, c.Nanoseconds
			}
		}
		l.ledger.accounts[gpu.Identity{UUID: kept.UUID, Kind: gpu.KindGPU}] = a
	}
}

func (r *reports) state() *statefile.Reports {
	if len(r.order) == 0 && !r.forgotten {
		return nil
	}
	out := *r // what is not kept is forgotten
	kept := &statefile.Reports{}
	for i := range max(0, len(r.order)-maxKept) {
		out.forget(r.order[(r.oldest+i)%len(r.order)].id)
	}
	r.newest(maxKept, func(x report, count int32) {
		kept.Known = append(kept.Known, statefile.Report{ID: x.id, Code: x.code, Count: int64(count)})
	})
	if out.forgotten {
		kept.Floor = &out.floor
	}
	return kept
}

func (r *reports) restore(kept *statefile.Reports) {
	if kept == nil {
		return
	}
	if kept.Floor != nil {
		r.forget(*kept.Floor)
	}
	for _, x := range kept.Known[max(0, len(kept.Known)-maxReports):] {
		key := report{id: x.ID, code: x.Code}
		if r.counts == nil {
			r.counts = map[report]reportCount{}
		}
		if _, twice := r.counts[key]; !twice {
			r.remember(key)
		}
		r.counts[key] = reportCount{counted: int32(min(x.Count, 1<<30))}
	}
}
