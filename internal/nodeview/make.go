package nodeview

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// jobLabel is the owner label of a batch job.
const jobLabel = "hpc_job"

// New returns the document of s, which is not kept.
func New(s *gpu.Snapshot) *Document {
	d := &Document{Version: Version, Time: s.Time, ValidForSeconds: s.ValidFor.Seconds(), Entities: []Entity{}, Problem: problem(s.Health.Err)}
	t := s.Topology
	if t == nil {
		return d
	}
	d.Source, d.Driver, d.Library, d.Engine = t.Source, t.Driver, t.Library, t.Engine
	d.Simulated = t.Source == "sim"
	names := namesOf(t)
	values := columnsOf(s)
	for _, row := range rowsOf(t) {
		d.Entities = append(d.Entities, entity(s, values, names, row))
	}
	d.Others = othersOf(s, names)
	for i := range t.Pairs {
		p := &t.Pairs[i]
		d.Pairs = append(d.Pairs, Pair{A: t.Devices[p.A].GPU, B: t.Devices[p.B].GPU, Path: p.Path.String(), NVLinks: p.NVLinks})
	}
	d.XIDs = xidsOf(s, values, names)
	d.Unavailable = unavailableOf(s, names)
	return d
}

func problem(err error) *Problem {
	if err == nil {
		return nil
	}
	return &Problem{Reason: gpu.Reason(err), Text: err.Error()}
}

// isRow reports whether devices of a kind have a row of their own.
func isRow(k gpu.Kind) bool {
	return k == gpu.KindGPU || k == gpu.KindGPUInstance
}

// rowsOf returns the rows of GPUs, each followed by its instances and theirs.
func rowsOf(t *gpu.Topology) []int {
	var rows []int
	for row := range t.Devices {
		if isRow(t.Devices[row].Entity.Kind) {
			rows = append(rows, row)
		}
	}
	rank := func(row int) (uint32, uint32, uint32, int) {
		d := &t.Devices[row]
		switch d.Entity.Kind {
		case gpu.KindGPU:
			return d.GPU, 0, 0, row
		default:
			return d.GPU, 1 + d.InstanceID, 0, row
		}
	}
	slices.SortStableFunc(rows, func(a, b int) int {
		g1, i1, c1, r1 := rank(a)
		g2, i2, c2, r2 := rank(b)
		return cmp.Or(cmp.Compare(g1, g2), cmp.Compare(i1, i2), cmp.Compare(c1, c2), cmp.Compare(r1, r2))
	})
	return rows
}

func namesOf(t *gpu.Topology) []string {
	names := make([]string, len(t.Devices))
	for row := range t.Devices {
		d := &t.Devices[row]
		switch d.Entity.Kind {
		case gpu.KindGPU:
			names[row] = fmt.Sprintf("GPU %d", d.GPU)
		case gpu.KindGPUInstance:
			names[row] = fmt.Sprintf("GPU %d / instance %d", d.GPU, d.InstanceID)
		default:
			names[row] = d.Entity.String()
		}
	}
	return names
}

// columns are the columns of a snapshot that a document shows, by field.
type columns map[gpu.FieldID]*quantity

// A quantity is a column, and what leads from its unit to the field's.
type quantity struct {
	values []gpu.Value
	scale  float64
}

func columnsOf(s *gpu.Snapshot) columns {
	found := columns{}
	for i := range s.Columns {
		c := s.Columns[i].Counter
		if c.Scale == 0 {
			continue
		}
		if n, ok := catalog.Lookup(c.Name); ok && found[n.Entry.ID] == nil {
			found[n.Entry.ID] = &quantity{s.Columns[i].Values, c.Scale}
		}
	}
	return found
}

// number returns a field's value of a row, in the field's unit times factor; nil where there is
// none.
func (c columns) number(field gpu.FieldID, row int, factor float64) *float64 {
	q := c[field]
	if q == nil {
		return nil
	}
	n, ok := q.values[row].Scale(factor / q.scale).Number()
	if !ok || math.IsInf(n, 0) { // JSON has no infinity
		return nil
	}
	return &n
}

const mebibyte = 1 << 20

func entity(s *gpu.Snapshot, values columns, names []string, row int) Entity {
	t := s.Topology
	d, h := &t.Devices[row], &s.Health.Entities[row]
	e := Entity{
		Name: names[row], Kind: d.Entity.Kind.String(), GPU: d.GPU, UUID: d.UUID, MIGUUID: d.MIGUUID,
		BusID: d.PCIBusID, Model: d.Model, Profile: d.Profile,
		Problem: problem(h.Err), OldestSample: float64(h.OldestSample) / 1e9,
	}
	if d.Entity.Kind != gpu.KindGPU {
		e.Instance = &d.InstanceID
	}
	for other := range t.Devices {
		if t.ParentRow(other) == row && t.Devices[other].Entity.Kind == gpu.KindGPUInstance {
			e.Instances++
		}
	}
	// The engine's activity says what an instance does too; the driver's utilization is of GPUs alone.
	e.BusyRatio = cmp.Or(values.number(catalog.ProfGREngineActive, row, 1), values.number(catalog.GPUUtil, row, 0.01))
	e.MemoryUsedBytes = values.number(catalog.FBUsed, row, mebibyte)
	e.MemoryTotalBytes = memoryTotal(values, row)
	e.PowerWatts = values.number(catalog.PowerUsage, row, 1)
	e.TemperatureCelsius = values.number(catalog.GPUTemp, row, 1)
	e.MemoryTemperatureCelsius = values.number(catalog.MemoryTemp, row, 1)
	e.SMClockHertz = values.number(catalog.SMClock, row, 1e6)
	if e.Problem == nil { // the events of a window say nothing of a device that is not read now
		e.Throttle = throttle(s, values, row)
	}
	use := s.Owners.UseOf(row)
	e.Replicas = use.Replicas
	if e.Owners = owners(s, &use, d); len(e.Owners) > 0 {
		e.Sharing = use.Sharing.String()
	}
	return e
}

func memoryTotal(values columns, row int) *float64 {
	if total := values.number(catalog.FBTotal, row, mebibyte); total != nil {
		return total
	}
	used, free := values.number(catalog.FBUsed, row, mebibyte), values.number(catalog.FBFree, row, mebibyte)
	if used == nil || free == nil {
		return nil
	}
	sum := *used + *free
	if reserved := values.number(catalog.FBReserved, row, mebibyte); reserved != nil {
		sum += *reserved
	}
	return &sum
}

// throttle returns the clock events that hold the clocks down, without those that are no fault: an
// idle GPU's low clocks and clocks that were set.
func throttle(s *gpu.Snapshot, values columns, row int) []string {
	if mask := values.number(catalog.ClocksEventReasons, row, 1); mask != nil {
		events := []string{}
		for e := range catalog.ClockEvents(int64(*mask)) {
			if isThrottle(e.Name) {
				events = append(events, e.Name)
			}
		}
		return events
	}
	f := familyOf(s, catalog.ClockEventsCount)
	if f == nil {
		return nil
	}
	events := []string{}
	for i := range f.Series {
		x := &f.Series[i]
		if n, _ := x.Value.Number(); x.Row == row && n > 0 {
			if name := labelOf(x.Labels, "clock_event"); isThrottle(name) && !slices.Contains(events, name) {
				events = append(events, name)
			}
		}
	}
	return events
}

func isThrottle(event string) bool {
	switch event {
	case "gpu_idle", "clocks_setting", "display_clocks", "sync_boost":
		return false
	default:
		return true
	}
}

// owners returns who has an entity, a pod once.
func owners(s *gpu.Snapshot, use *gpu.Use, d *gpu.Device) []Owner {
	var list []Owner
	for i := range use.Owners {
		o := &use.Owners[i]
		job := labelOf(o.Labels, jobLabel)
		at := slices.IndexFunc(list, func(x Owner) bool {
			if o.Pod != "" {
				return x.Namespace == o.Namespace && x.Pod == o.Pod
			}
			return x.Pod == "" && x.Job == job && slices.Contains(x.Containers, o.Container) == (o.Container != "")
		})
		if at < 0 {
			list = append(list, Owner{Namespace: o.Namespace, Pod: o.Pod, Job: job})
			at = len(list) - 1
		}
		x := &list[at]
		if o.Container != "" && !slices.Contains(x.Containers, o.Container) {
			x.Containers = append(x.Containers, o.Container)
		}
		if o.Replica != "" {
			x.Replicas++
		}
	}
	for i := range list {
		list[i].BusyRatio = ownPart(s, accounting.PodUtilization, d, &list[i])
		list[i].MemoryUsedBytes = ownPart(s, accounting.PodMemory, d, &list[i])
	}
	return list
}

// ownPart returns what a family of the accounting says of a pod on an entity, nil where it is not
// known.
func ownPart(s *gpu.Snapshot, family string, d *gpu.Device, o *Owner) *float64 {
	f := familyOf(s, family)
	if f == nil || o.Pod == "" {
		return nil
	}
	instance := ""
	if d.Entity.Kind != gpu.KindGPU {
		instance = strconv.FormatUint(uint64(d.InstanceID), 10)
	}
	var sum *float64
	for i := range f.Series {
		x := &f.Series[i]
		n, ok := x.Value.Number()
		if ok && labelOf(x.Labels, "UUID") == d.UUID && labelOf(x.Labels, "GPU_I_ID") == instance &&
			labelOf(x.Labels, "namespace") == o.Namespace && labelOf(x.Labels, "pod") == o.Pod {
			if sum == nil {
				sum = new(float64)
			}
			*sum += n
		}
	}
	return sum
}

func othersOf(s *gpu.Snapshot, names []string) []Others {
	var list []Others
	for row := range s.Topology.Devices {
		kind := s.Topology.Devices[row].Entity.Kind
		if isRow(kind) {
			continue
		}
		at := slices.IndexFunc(list, func(o Others) bool { return o.Kind == kind.String() })
		if at < 0 {
			list = append(list, Others{Kind: kind.String()})
			at = len(list) - 1
		}
		if err := s.Health.Entities[row].Err; err != nil {
			list[at].Down = append(list[at].Down, Down{names[row], *problem(err)})
		} else {
			list[at].Up++
		}
	}
	return list
}

// xidsOf returns the XIDs of the families, and where these are not collected, the last of each GPU.
func xidsOf(s *gpu.Snapshot, values columns, names []string) []XID {
	var list []XID
	at := func(row int, code int64) *XID {
		i := slices.IndexFunc(list, func(x XID) bool { return x.Entity == names[row] && x.XID == code })
		if i < 0 {
			list = append(list, XID{Entity: names[row], XID: code, Text: catalog.XIDMessage(code)})
			i = len(list) - 1
		}
		return &list[i]
	}
	each := func(family string, take func(*XID, *gpu.Series, float64)) {
		f := familyOf(s, family)
		if f == nil {
			return
		}
		for i := range f.Series {
			x := &f.Series[i]
			n, ok := x.Value.Number()
			code, err := strconv.ParseInt(labelOf(x.Labels, "xid"), 10, 64)
			if ok && err == nil && n > 0 && x.Row >= 0 {
				take(at(x.Row, code), x, n)
			}
		}
	}
	each(catalog.XIDLastSeen, func(e *XID, x *gpu.Series, n float64) {
		if n >= e.LastSeen {
			e.LastSeen = n
			if pod := labelOf(x.Owner, "pod"); pod != "" {
				e.Pod = labelOf(x.Owner, "namespace") + "/" + pod
			}
		}
	})
	each(catalog.XIDErrorsTotal, func(e *XID, _ *gpu.Series, n float64) { e.Count += n })
	for row := range names {
		if last := values.number(catalog.XIDErrors, row, 1); last != nil && *last > 0 {
			at(row, int64(*last))
		}
	}
	slices.SortStableFunc(list, func(a, b XID) int { return cmp.Compare(b.LastSeen, a.LastSeen) })
	return list
}

func unavailableOf(s *gpu.Snapshot, names []string) []Unavailable {
	var list []Unavailable
	for _, u := range s.Health.Unavailable {
		at := slices.IndexFunc(list, func(x Unavailable) bool {
			return x.Field == u.Field && x.Reason == u.Reason && (u.Row == gpu.AllRows) == (x.Entities == nil)
		})
		if at < 0 {
			list = append(list, Unavailable{Field: u.Field, Reason: u.Reason})
			at = len(list) - 1
		}
		if u.Row != gpu.AllRows {
			list[at].Entities = append(list[at].Entities, names[u.Row])
		}
	}
	return list
}

func familyOf(s *gpu.Snapshot, name string) *gpu.Family {
	for i := range s.Families {
		if s.Families[i].Name == name {
			return &s.Families[i]
		}
	}
	return nil
}

func labelOf(labels []gpu.Label, name string) string {
	for _, l := range labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}
