package collector

import (
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A teller makes the families that are told rather than counted: where the
// GPUs sit, which never changes within a session, and in what condition they
// are, as the latest Read said. It is made for one topology and one plan.
type teller struct {
	topology *gpu.Topology
	plan     *gpu.Plan
	told     []*told // per family of the plan, nil for what others make
	gpus     []int   // rows of the GPUs

	// Labels are made once per session and value: there are as many as the
	// engine has words.
	checks map[check][]gpu.Label
	peers  map[peer][]gpu.Label
}

type check struct{ watch, code string }

type peer struct {
	row    int
	status string
}

// A told is one family.
type told struct {
	series []gpu.Series
	from   func(*gpu.Batch) // makes the series of a batch; nil for those that stay
	field  int              // the Fault.Field that speaks of it; 0 for none
	faults []string         // per row, why there is nothing
	pairs  bool             // takes two GPUs
}

func newTeller(t *gpu.Topology, plan *gpu.Plan) *teller {
	l := &teller{
		topology: t, plan: plan, told: make([]*told, len(plan.Derived)),
		checks: map[check][]gpu.Label{}, peers: map[peer][]gpu.Label{},
	}
	for row := range t.Devices {
		if t.Devices[row].Entity.Kind == gpu.KindGPU {
			l.gpus = append(l.gpus, row)
		}
	}
	for i := range plan.Derived {
		x := &told{faults: make([]string, len(t.Devices))}
		switch plan.Derived[i].Name {
		case counters.GPUPairInfo.String():
			x.series, x.pairs = pairSeries(t), true
		case counters.GPUAffinityInfo.String():
			x.series = affinitySeries(t)
		case counters.GPUHealthStatus.String():
			x.field, x.from = gpu.FieldHealthChecks, func(b *gpu.Batch) { x.series = l.health(x.series[:0], b) }
		case counters.P2PStatus.String():
			x.field, x.pairs = gpu.FieldPeerStates, true
			x.from = func(b *gpu.Batch) { x.series = l.peerStates(x.series[:0], b) }
		default:
			continue
		}
		l.told[i] = x
	}
	return l
}

// blame notes why there is no health or no peer state of a row, and reports
// whether the fault is about these.
func (l *teller) blame(f *gpu.Fault) bool {
	if f.Field != gpu.FieldHealthChecks && f.Field != gpu.FieldPeerStates {
		return false
	}
	for _, x := range l.told {
		if x == nil || x.field != f.Field {
			continue
		}
		if f.Row != gpu.AllRows {
			x.faults[f.Row] = gpu.Reason(f.Err)
			continue
		}
		for row := range x.faults {
			x.faults[row] = gpu.Reason(f.Err)
		}
	}
	return true
}

// forget begins a cycle.
func (l *teller) forget() {
	for _, x := range l.told {
		if x != nil {
			clear(x.faults)
		}
	}
}

// families appends the families, as far as there is something to tell.
func (l *teller) families(list []gpu.Family, b *gpu.Batch) []gpu.Family {
	for i, x := range l.told {
		if x == nil {
			continue
		}
		if x.from != nil {
			x.from(b)
		}
		d := &l.plan.Derived[i]
		list = append(list, gpu.Family{Name: d.Name, Type: d.Type, Help: d.Help, Series: x.series})
	}
	return list
}

// health appends a series per health watch and GPU; its value is DCGM's result.
func (l *teller) health(series []gpu.Series, b *gpu.Batch) []gpu.Series {
	for i := range b.Health {
		c := &b.Health[i]
		key := check{c.Watch, c.Code}
		labels, ok := l.checks[key]
		if !ok {
			labels = []gpu.Label{{Name: "health_watch", Value: c.Watch}, {Name: "health_error_code", Value: c.Code}}
			if c.Code == "" {
				labels[1].Value = "DCGM_FR_OK"
			}
			l.checks[key] = labels
		}
		series = append(series, gpu.Series{Row: c.Row, Labels: labels, Fixed: true, Value: gpu.Int(c.Result)})
	}
	return series
}

// peerStates appends a series per GPU and other GPU.
func (l *teller) peerStates(series []gpu.Series, b *gpu.Batch) []gpu.Series {
	for i := range b.Peers {
		p := &b.Peers[i]
		key := peer{p.Peer, p.Status}
		labels, ok := l.peers[key]
		if !ok {
			other := strconv.FormatUint(uint64(l.topology.Devices[p.Peer].GPU), 10)
			labels = []gpu.Label{{Name: "peer_gpu", Value: other}, {Name: "link_status", Value: p.Status}}
			l.peers[key] = labels
		}
		series = append(series, gpu.Series{Row: p.Row, Labels: labels, Fixed: true, Value: gpu.Int(p.Number())})
	}
	return series
}

// tells reports whether the family at an index of Plan.Derived is the teller's.
func (l *teller) tells(i int) bool { return l.told[i] != nil }

// unavailable appends where the family at an index of Plan.Derived is not
// served, and why: once where it is the same everywhere, else per GPU. Lost
// GPUs are not listed.
func (l *teller) unavailable(list []gpu.FieldHealth, i int, entities []gpu.EntityHealth) []gpu.FieldHealth {
	x, name := l.told[i], l.plan.Derived[i].Name
	if len(l.gpus) == 0 || x.pairs && len(l.gpus) == 1 {
		return append(list, gpu.FieldHealth{Field: name, Row: gpu.AllRows, Reason: reasonNoEntity})
	}
	start := len(list)
	for _, row := range l.gpus {
		if entities[row].Err != nil || x.tellsOf(row, l.topology) {
			continue
		}
		reason := x.faults[row]
		if reason == "" {
			reason = gpu.Reason(gpu.ErrNotSupported) // the engine does not tell
		}
		list = append(list, gpu.FieldHealth{Field: name, Row: row, Reason: reason})
	}
	if len(x.series) == 0 && len(list) > start && sameReason(list[start:]) {
		list[start].Row = gpu.AllRows
		list = list[:start+1]
	}
	return list
}

// tellsOf reports whether a series is about a row. A pair that is told once is
// about both of its GPUs.
func (x *told) tellsOf(row int, t *gpu.Topology) bool {
	for i := range x.series {
		if x.series[i].Row == row {
			return true
		}
	}
	if x.from != nil || !x.pairs {
		return false
	}
	for i := range t.Pairs {
		if t.Pairs[i].B == row {
			return true
		}
	}
	return false
}
