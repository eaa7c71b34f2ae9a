package events

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxKept bounds the reports of an engine that are kept for another process.
const maxKept = 1024

// A State is what a Log keeps for a later process. Times are Unix nanoseconds; zero is never.
type State struct {
	Version int `json:"version"`
	// KernelLog is the position up to which the kernel's log has been read, as its reader spells it;
	// empty where none was.
	KernelLog string      `json:"kernel_log,omitempty"`
	GPUs      []GPUCounts `json:"gpus,omitempty"`
}

// GPUCounts are what is kept of one GPU. No two have the same UUID.
type GPUCounts struct {
	UUID     string `json:"uuid"`
	PCIBusID string `json:"pci_bus_id,omitempty"`
	// LastXID is the time of the newest XID that the engine reported to an exporter that kept no
	// Reports.
	LastXID int64       `json:"last_xid,omitempty"`
	Reports *Reports    `json:"reports,omitempty"`
	Owners  []OwnerXIDs `json:"owners,omitempty"`
	// Unpaired are recent XIDs of one witness that the other may yet report.
	Unpaired []Unpaired   `json:"unpaired,omitempty"`
	Clock    []ClockTotal `json:"clock,omitempty"`
}

// Reports are the engine's reports of XIDs that were counted.
type Reports struct {
	// Known are the newest ones, in the order in which they came.
	Known []Report `json:"known,omitempty"`
	// Floor is the highest ID of those that were counted and are not known; nil where all are.
	Floor *int64 `json:"floor,omitempty"`
}

// A Report is XIDs that were counted: Count with one code and one ID.
type Report struct {
	ID    int64 `json:"id"`
	Code  int64 `json:"xid"`
	Count int64 `json:"count"`
}

// state returns what a later process needs to go on counting. Another goroutine may write it.
func (l *Log) state() *State {
	s := &State{Version: Version, KernelLog: l.ledger.position}
	for id, a := range l.ledger.accounts {
		if id.Kind == gpu.KindGPU && a.uuid != "" {
			s.GPUs = append(s.GPUs, a.state(&l.clock))
		}
	}
	slices.SortFunc(s.GPUs, func(a, b GPUCounts) int { return strings.Compare(a.UUID, b.UUID) })
	return s
}

func (a *account) state(k *clock) GPUCounts {
	kept := GPUCounts{
		UUID: a.uuid, PCIBusID: a.pci, LastXID: a.reported, Reports: a.reports[gpu.WitnessEngine].state(),
		Unpaired: slices.Clone(a.pairs.waiting), Clock: slices.Clone(a.reasons.events),
	}
	for _, set := range a.owners.sets {
		set.XIDs = slices.DeleteFunc(slices.Clone(set.XIDs), func(x XIDCount) bool { return x.Count == 0 })
		if len(set.XIDs) > 0 {
			kept.Owners = append(kept.Owners, set)
		}
	}
	for i := range kept.Unpaired {
		u := &kept.Unpaired[i]
		u.From, u.To = k.wall(u.From), k.wall(u.To)
	}
	kept.Clock = slices.DeleteFunc(kept.Clock, func(c ClockTotal) bool { return c.Count == 0 && c.Nanoseconds == 0 })
	return kept
}

// restore goes on from what an earlier process kept.
func (l *Log) restore(s *State) {
	for i := range s.GPUs {
		kept := &s.GPUs[i]
		l.ledger.accounts[gpu.Identity{UUID: kept.UUID, Kind: gpu.KindGPU}] = kept.account(&l.clock)
	}
}

func (g *GPUCounts) account(k *clock) *account {
	a := &account{uuid: g.UUID, pci: g.PCIBusID}
	// A time to come is that of a clock that was wrong.
	a.reported = min(g.LastXID, k.wall(k.now))
	a.reports[gpu.WitnessEngine].restore(g.Reports)
	for _, o := range g.Owners {
		labels := sortedLabels(o.Labels)
		for _, x := range o.XIDs {
			a.owners.set(labels, k.of(x.Last)).add(x.Code, x.Count, x.Last, k.wall(k.now))
		}
	}
	for _, u := range g.Unpaired[:min(len(g.Unpaired), maxUnpaired)] {
		u.From, u.To, u.seen = k.of(u.From), k.of(u.To), k.now
		a.pairs.waiting = append(a.pairs.waiting, u)
	}
	for _, c := range g.Clock {
		if e := a.reasons.named(c.Event); e != nil {
			e.Count, e.Nanoseconds = c.Count, c.Nanoseconds
		}
	}
	return a
}

func (r *reports) state() *Reports {
	if len(r.order) == 0 && !r.forgotten {
		return nil
	}
	out := *r // what is not kept is forgotten
	kept := &Reports{}
	for i := range max(0, len(r.order)-maxKept) {
		out.forget(r.order[(r.oldest+i)%len(r.order)].id)
	}
	r.newest(maxKept, func(x report, count int32) {
		kept.Known = append(kept.Known, Report{ID: x.id, Code: x.code, Count: int64(count)})
	})
	if out.forgotten {
		kept.Floor = &out.floor
	}
	return kept
}

func (r *reports) restore(kept *Reports) {
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
