package snapshot

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Facts derives placement and connection families, which are fixed for a session, and health, peer states and the
// fabric, which each Read reports. The zero value is ready to use.
type Facts struct {
	// AsReported shows health findings as DCGM reports them: without corrections and treatment, with a single code for
	// all findings without a name, and with DCGM's own result for the watch ALL. Otherwise ALL has the worst result of
	// a GPU's watches.
	AsReported bool
	// IgnoredHealth lists codes of health findings that alerts and the verdict ignore, in addition to those of the
	// catalog.
	IgnoredHealth []string
	// Booted is when this machine started, or zero if unknown.
	Booted time.Time

	topology  *gpu.Topology
	families  []*fact
	gpus      []int           // rows of the GPUs
	planned   map[string]bool // the planned fields and families that supersede health findings
	linked    map[string]bool // by UUID: whether a link of the GPU has been up in any session
	linksDown map[string]bool // by UUID: whether all links of the GPU have been reported as down in any session
	hasIMEX   bool            // whether the IMEX daemon has been ready in any session
}

// A derivation makes the series of a family: fixed once for a session, derive in each cycle.
type derivation struct {
	fixed  func(*gpu.Topology) []gpu.Series
	derive func(*Facts, *fact, *Cycle) []gpu.Series
	part   gpu.Part // the part of a Fault that explains missing series; PartField if there is none
	pairs  bool     // each series is about a pair of GPUs
}

// derivations has the families that Facts computes.
var derivations = map[string]derivation{
	catalog.GPUPairInfo:     {fixed: pairSeries, pairs: true},
	catalog.GPUAffinityInfo: {fixed: affinitySeries},
	catalog.GPUHealthStatus: {derive: (*Facts).health, part: gpu.PartHealthChecks},
	catalog.NVSwitchHealth:  {derive: (*Facts).health, part: gpu.PartHealthChecks},
	catalog.NodeHealth:      {derive: (*Facts).health, part: gpu.PartHealthChecks},
	catalog.P2PStatus:       {derive: (*Facts).peerStates, part: gpu.PartPeerStates, pairs: true},
	catalog.FabricState:     {derive: (*Facts).fabricStates},
	catalog.FabricInfo:      {derive: (*Facts).fabricInfo},
}

// A fact is one derived family of the plan.
type fact struct {
	derivation
	gpu.Family
	rows   []int    // rows of the entities that have series
	fault  string   // why there is no series
	faults []string // by row: why it has no series
}

// Bind implements Deriver.
func (l *Facts) Bind(t *gpu.Topology, plan *gpu.Plan) {
	l.topology, l.families, l.gpus, l.planned = t, nil, t.RowsOf(gpu.KindsOf(gpu.KindGPU)), plannedOf(plan)
	if l.linked == nil {
		l.linked, l.linksDown = map[string]bool{}, map[string]bool{}
	}
	for i := range plan.Derived {
		p := &plan.Derived[i]
		d, ok := derivations[p.Name]
		if !ok {
			continue
		}
		x := &fact{
			derivation: d, faults: make([]string, len(t.Devices)),
			Family: gpu.Family{Name: p.Name, Type: p.Type, Help: p.Help},
			rows:   t.RowsOf(cmp.Or(catalog.FamilyNamed(p.Name).Health, gpu.KindsOf(gpu.KindGPU))),
		}
		if d.fixed != nil {
			x.Series = d.fixed(t)
		}
		l.families = append(l.families, x)
	}
}

// Derive implements Deriver.
func (l *Facts) Derive(list []gpu.Family, c *Cycle) []gpu.Family {
	if c.Final {
		return list
	}
	for _, x := range l.families {
		x.noteFaults(c.Batch.Faults)
		if x.derive != nil {
			x.Series = x.derive(l, x, c)
		}
		list = append(list, x.Family)
	}
	return list
}

// noteFaults records why rows have no series.
func (x *fact) noteFaults(faults []gpu.Fault) {
	x.fault = ""
	clear(x.faults)
	for i := range faults {
		switch f := &faults[i]; {
		case x.part == gpu.PartField || f.Part != x.part:
		case f.Row == gpu.AllRows:
			x.fault = gpu.Reason(f.Err)
		default:
			x.faults[f.Row] = gpu.Reason(f.Err)
		}
	}
}

// Unavailable implements Deriver. It lists families by the same rules by which Builder.unavailable lists counters.
func (l *Facts) Unavailable(list []gpu.FieldHealth, c *Cycle) []gpu.FieldHealth {
	for _, x := range l.families {
		if len(x.rows) == 0 || x.pairs && len(x.rows) == 1 {
			reason := cmp.Or(x.fault, ReasonNoEntity)
			list = append(list, gpu.FieldHealth{Field: x.Name, Row: gpu.AllRows, Reason: reason})
			continue
		}
		start := len(list)
		for _, row := range x.rows {
			if c.Down(row) == nil && !x.isAbout(row, l.topology) {
				reason := cmp.Or(x.faults[row], x.fault, gpu.Reason(gpu.ErrNotSupported))
				list = append(list, gpu.FieldHealth{Field: x.Name, Row: row, Reason: reason})
			}
		}
		if len(x.Series) == 0 {
			list = onceIfEqual(list, start)
		}
	}
	return list
}

// isAbout reports whether a series is about a row. A pair of the topology is listed once and is about both GPUs.
func (x *fact) isAbout(row int, t *gpu.Topology) bool {
	return slices.ContainsFunc(x.Series, func(s gpu.Series) bool { return s.Row == row }) ||
		x.fixed != nil && x.pairs && slices.ContainsFunc(t.Pairs, func(p gpu.Pair) bool { return p.B == row })
}

// peerStates returns one series for each ordered pair of GPUs.
func (l *Facts) peerStates(_ *fact, c *Cycle) []gpu.Series {
	series := make([]gpu.Series, len(c.Batch.Peers))
	for i, p := range c.Batch.Peers {
		labels := gpu.Labels("peer_gpu", indexOf(l.topology, p.Peer), "link_status", p.Status)
		series[i] = gpu.Series{Row: p.Row, Labels: labels, Value: gpu.Int(p.Number())}
	}
	return series
}

// pairSeries returns one series for each pair of connected GPUs, on the row of the first.
func pairSeries(t *gpu.Topology) (series []gpu.Series) {
	for _, p := range t.Pairs {
		series = append(series, info(p.A, "peer_gpu", indexOf(t, p.B), "peer_uuid", t.Devices[p.B].UUID,
			"path", p.Path.String(), "nvlinks", strconv.Itoa(p.NVLinks)))
	}
	return series
}

// affinitySeries returns one series for each GPU whose location is known.
func affinitySeries(t *gpu.Topology) (series []gpu.Series) {
	for row := range t.Devices {
		place := t.Devices[row].Place
		if place == nil {
			continue
		}
		node := ""
		if place.NUMANode >= 0 {
			node = strconv.Itoa(place.NUMANode)
		}
		if s := info(row, "numa_node", node, "cpu_affinity", place.CPUs); len(s.Labels) > 0 {
			series = append(series, s)
		}
	}
	return series
}

// indexOf returns the gpu label of a row.
func indexOf(t *gpu.Topology, row int) string {
	return strconv.FormatUint(uint64(t.Devices[row].GPU), 10)
}

// info returns a series that carries only labels.
func info(row int, labels ...string) gpu.Series {
	return gpu.Series{Row: row, Labels: gpu.Labels(labels...), Value: gpu.Int(1)}
}
