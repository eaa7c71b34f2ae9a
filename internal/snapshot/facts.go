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
	// AsReported shows health findings as DCGM reports them: without corrections and treatment, with one code for all
	// that have no name, and with DCGM's own watch as ALL. Otherwise ALL is the worst of a GPU's watches.
	AsReported bool
	// IgnoredHealth lists codes of health findings that alerts and the verdict ignore, in addition to those of the
	// catalog.
	IgnoredHealth []string
	// Booted is when this machine started, or zero if unknown.
	Booted time.Time

	topology  *gpu.Topology
	plan      *gpu.Plan
	families  []*fact         // by family of the plan; nil for families made elsewhere
	gpus      []int           // rows of the GPUs
	fields    places          // indexes in the plan
	planned   map[string]bool // the planned fields and families that supersede health findings
	linked    map[string]bool // by UUID: whether a link of the GPU has been up in any session
	linksDown map[string]bool // by UUID: whether all links of the GPU have been reported as down in any session
	hasIMEX   bool            // whether the IMEX daemon has been ready in any session
}

// places holds the plan indexes of the fields that health and the fabric need, or -1 if the plan has no such field.
type places struct{ fabricState, cluster, clique, mask, mig, imexDaemon, imexDomain int }

func placesIn(plan *gpu.Plan) places {
	at := func(id gpu.FieldID) int {
		return slices.IndexFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == id })
	}
	return places{
		fabricState: at(catalog.FabricManagerStatus), cluster: at(catalog.FabricClusterUUID),
		clique: at(catalog.FabricCliqueID), mask: at(catalog.FabricHealthMask), mig: at(catalog.MIGMode),
		imexDaemon: at(catalog.IMEXDaemonStatus), imexDomain: at(catalog.IMEXDomainStatus),
	}
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
	kinds  gpu.Kinds // of the entities that have series
	rows   []int     // their rows
	series []gpu.Series
	fault  string   // why there is no series
	faults []string // by row: why it has no series
}

// Bind implements Deriver.
func (l *Facts) Bind(t *gpu.Topology, plan *gpu.Plan) {
	l.topology, l.plan, l.families = t, plan, make([]*fact, len(plan.Derived))
	l.gpus, l.fields, l.planned = t.RowsOf(gpu.KindsOf(gpu.KindGPU)), placesIn(plan), plannedOf(plan)
	if l.linked == nil {
		l.linked, l.linksDown = map[string]bool{}, map[string]bool{}
	}
	for i := range plan.Derived {
		name := plan.Derived[i].Name
		d, ok := derivations[name]
		if !ok {
			continue
		}
		x := &fact{derivation: d, kinds: gpu.KindsOf(gpu.KindGPU), faults: make([]string, len(t.Devices))}
		if kinds := catalog.FamilyNamed(name).Health; kinds != 0 {
			x.kinds = kinds
		}
		x.rows = t.RowsOf(x.kinds)
		if d.fixed != nil {
			x.series = d.fixed(t)
		}
		l.families[i] = x
	}
}

// addFault records why a row has no health or peer state.
func (l *Facts) addFault(f *gpu.Fault) {
	if f.Part != gpu.PartHealthChecks && f.Part != gpu.PartPeerStates {
		return
	}
	for _, x := range l.families {
		switch {
		case x == nil || x.part != f.Part:
		case f.Row == gpu.AllRows:
			x.fault = gpu.Reason(f.Err)
		default:
			x.faults[f.Row] = gpu.Reason(f.Err)
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
			x.fault = ""
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
		if x.derive != nil {
			x.series = x.derive(l, x, c)
		}
		d := &l.plan.Derived[i]
		list = append(list, gpu.Family{Name: d.Name, Type: d.Type, Help: d.Help, Series: x.series})
	}
	return list
}

// peerStates returns one series for each ordered pair of GPUs.
func (l *Facts) peerStates(_ *fact, c *Cycle) []gpu.Series {
	series := make([]gpu.Series, len(c.Batch.Peers))
	for i := range c.Batch.Peers {
		p := &c.Batch.Peers[i]
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
	if len(x.rows) == 0 || x.pairs && len(x.rows) == 1 {
		return append(list, gpu.FieldHealth{Field: name, Row: gpu.AllRows, Reason: cmp.Or(x.fault, ReasonNoEntity)})
	}
	start := len(list)
	for _, row := range x.rows {
		if c.Down(row) != nil || x.isAbout(row, l.topology) {
			continue
		}
		reason := cmp.Or(x.faults[row], x.fault, gpu.Reason(gpu.ErrNotSupported))
		list = append(list, gpu.FieldHealth{Field: name, Row: row, Reason: reason})
	}
	if len(x.series) == 0 {
		list = onceIfEqual(list, start)
	}
	return list
}

// isAbout reports whether a series is about a row. A pair of the topology is listed once and is about both GPUs.
func (x *fact) isAbout(row int, t *gpu.Topology) bool {
	return slices.ContainsFunc(x.series, func(s gpu.Series) bool { return s.Row == row }) ||
		x.fixed != nil && x.pairs && slices.ContainsFunc(t.Pairs, func(p gpu.Pair) bool { return p.B == row })
}
