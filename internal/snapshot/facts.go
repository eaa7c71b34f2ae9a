package snapshot

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Facts derives the families of places and connections, which stay for a session, and of health, peer states and the fabric,
// which each Read reports. Its zero value is ready.
type Facts struct {
	// Strict shows the health watch ALL as DCGM and dcgm-exporter do, and nothing of the fabric, which the latter does not have.
	// Without it ALL is the worst of a GPU's watches.
	Strict bool

	topology *gpu.Topology
	plan     *gpu.Plan
	families []*fact // per family of the plan, nil for what others make
	gpus     []int   // rows of the GPUs
}

// A fact is one family.
type fact struct {
	series []gpu.Series
	from   func(*Cycle) // makes the series of a cycle; nil for a family that stays
	field  int          // its Fault.Field; 0 for none
	faults []string     // per row, why there is no series
	pairs  bool         // takes two GPUs
}

// Bind implements Deriver.
func (l *Facts) Bind(t *gpu.Topology, plan *gpu.Plan) {
	*l = Facts{Strict: l.Strict, topology: t, plan: plan, families: make([]*fact, len(plan.Derived))}
	for row := range t.Devices {
		if t.Devices[row].Entity.Kind == gpu.KindGPU {
			l.gpus = append(l.gpus, row)
		}
	}
	for i := range plan.Derived {
		x := &fact{faults: make([]string, len(t.Devices))}
		switch plan.Derived[i].Name {
		case catalog.GPUPairInfo:
			x.series, x.pairs = pairSeries(t), true
		case catalog.GPUAffinityInfo:
			x.series = affinitySeries(t)
		case catalog.GPUHealthStatus:
			x.field, x.from = gpu.FieldHealthChecks, func(c *Cycle) { x.series = l.health(c.Batch) }
		case catalog.P2PStatus:
			x.field, x.pairs = gpu.FieldPeerStates, true
			x.from = func(c *Cycle) { x.series = l.peerStates(c.Batch) }
		case catalog.FabricState, catalog.FabricInfo:
			if l.Strict {
				continue
			}
			x.from = func(c *Cycle) { l.fabricStates(x, c) }
			if plan.Derived[i].Name == catalog.FabricInfo {
				x.from = func(c *Cycle) { l.fabricInfo(x, c) }
			}
		default:
			continue
		}
		l.families[i] = x
	}
}

// addFault notes why there is no health or no peer state of a row.
func (l *Facts) addFault(f *gpu.Fault) {
	if f.Field != gpu.FieldHealthChecks && f.Field != gpu.FieldPeerStates {
		return
	}
	for _, x := range l.families {
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
}

// Derive implements Deriver.
func (l *Facts) Derive(list []gpu.Family, c *Cycle) []gpu.Family {
	if c.Kind != Served {
		return list
	}
	for _, x := range l.families {
		if x != nil {
			clear(x.faults)
		}
	}
	for i := range c.Batch.Faults {
		l.addFault(&c.Batch.Faults[i])
	}
	for i, x := range l.families {
		if x == nil {
			continue
		}
		if x.from != nil {
			x.from(c)
		}
		d := &l.plan.Derived[i]
		list = append(list, gpu.Family{Name: d.Name, Type: d.Type, Help: d.Help, Series: x.series})
	}
	return list
}

// health returns a series per health watch and GPU; its value is DCGM's result. DCGM's own watch ALL has only failures of
// the whole GPU, and passes where others fail.
func (l *Facts) health(b *gpu.Batch) []gpu.Series {
	worst := map[int]gpu.HealthCheck{} // by row
	for _, c := range b.Health {
		if c.Result > worst[c.Row].Result {
			worst[c.Row] = c
		}
	}
	series := make([]gpu.Series, len(b.Health))
	for i := range b.Health {
		c := b.Health[i]
		if w := worst[c.Row]; c.Watch == "ALL" && !l.Strict && w.Result > c.Result {
			c.Code, c.Result = w.Code, w.Result
		}
		labels := []gpu.Label{{Name: "health_watch", Value: c.Watch}, {Name: "health_error_code", Value: cmp.Or(c.Code, "DCGM_FR_OK")}}
		series[i] = gpu.Series{Row: c.Row, Labels: labels, Value: gpu.Int(c.Result)}
	}
	return series
}

// peerStates returns a series per GPU and other GPU.
func (l *Facts) peerStates(b *gpu.Batch) []gpu.Series {
	series := make([]gpu.Series, len(b.Peers))
	for i := range b.Peers {
		p := &b.Peers[i]
		other := strconv.FormatUint(uint64(l.topology.Devices[p.Peer].GPU), 10)
		labels := []gpu.Label{{Name: "peer_gpu", Value: other}, {Name: "link_status", Value: p.Status}}
		series[i] = gpu.Series{Row: p.Row, Labels: labels, Value: gpu.Int(p.Number())}
	}
	return series
}

// Unavailable implements Deriver, as Builder.unavailable does for counters.
func (l *Facts) Unavailable(list []gpu.FieldHealth, c *Cycle) []gpu.FieldHealth {
	for i, x := range l.families {
		if x != nil {
			list = l.missing(list, x, l.plan.Derived[i].Name, c)
		}
	}
	return list
}

func (l *Facts) missing(list []gpu.FieldHealth, x *fact, name string, c *Cycle) []gpu.FieldHealth {
	if len(l.gpus) == 0 || x.pairs && len(l.gpus) == 1 {
		return append(list, gpu.FieldHealth{Field: name, Row: gpu.AllRows, Reason: reasonNoEntity})
	}
	start := len(list)
	for _, row := range l.gpus {
		if c.Down(row) != nil || x.isAbout(row, l.topology) {
			continue
		}
		reason := cmp.Or(x.faults[row], gpu.Reason(gpu.ErrNotSupported))
		list = append(list, gpu.FieldHealth{Field: name, Row: row, Reason: reason})
	}
	if len(x.series) == 0 {
		list = onceIfEqual(list, start)
	}
	return list
}

// isAbout reports whether a series is about a row. A pair of the topology stands once and is about both of its GPUs.
func (x *fact) isAbout(row int, t *gpu.Topology) bool {
	return slices.ContainsFunc(x.series, func(s gpu.Series) bool { return s.Row == row }) ||
		x.from == nil && x.pairs && slices.ContainsFunc(t.Pairs, func(p gpu.Pair) bool { return p.B == row })
}
