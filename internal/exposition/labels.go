package exposition

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A labeler renders the label blocks of a topology's entities and keeps them until something that
// they show has changed.
type labeler struct {
	opts Options
	seed maphash.Seed

	topology   *gpu.Topology
	owned      bool
	generation uint64
	columns    []labelColumn

	rows    []entity
	spans   []span
	arena   []byte
	scratch []gpu.Label

	dropped int // labels left out since the last look
}

// A labelColumn is a label-typed counter.
type labelColumn struct {
	index   int    // in Snapshot.Columns
	name    string // valid
	machine bool   // one value for the whole machine
	shown   []gpu.Value
}

// An entity is the rendered labels of a row.
type entity struct {
	block   block // what its series carry
	noOwner block // the same without its owner's; only its spans
	health  block // what its health series carry
	counted bool  // it has health series

	copies []block // what its series carry instead, once for each; nil for block

	// Under Strict:
	hidden    bool  // it has no series of fields
	whole     int   // the row of the GPU that it is an instance of, -1 for none
	instances []int // the rows of its instances
}

// A block is a set of labels in the labeler's arena: {name="value",…} with the space that separates
// it from the value, or the space alone.
type block struct {
	start, end int
	spans      []span
	hash       uint64
}

// A span is one label of a block: where in the arena it stands, and its name.
type span struct {
	start, end int
	name       string
	hash       uint64
	identity   bool // it distinguishes entities: nothing may replace it
}

// plan makes the labeler show these label-typed counters of s from now on. Two of one name become
// one: the first.
func (l *labeler) plan(s *gpu.Snapshot) {
	l.columns = nil
	for i := range s.Columns {
		if c := s.Columns[i].Counter; c.Type == gpu.MetricLabel {
			l.columns = append(l.columns, labelColumn{index: i, name: text.LabelName(c.Name), machine: isMachine(c.Name)})
		}
	}
	slices.SortStableFunc(l.columns, func(a, b labelColumn) int { return strings.Compare(a.name, b.name) })
	l.topology = nil
}

// update renders the blocks again if s shows another topology, other owners or other values of
// label-typed counters than the last one. It changes nothing and allocates nothing otherwise.
func (l *labeler) update(s *gpu.Snapshot) {
	if s.Topology == nil {
		l.rows = l.rows[:0]
		l.topology = nil
		return
	}
	if s.Topology == l.topology && l.sameOwners(s.Owners) && l.sameColumns(s) {
		return
	}
	l.topology = s.Topology
	l.owned, l.generation = s.Owners != nil, 0
	if s.Owners != nil {
		l.generation = s.Owners.Generation
	}
	for i := range l.columns {
		c := &l.columns[i]
		c.shown = append(c.shown[:0], s.Columns[c.index].Values...)
	}
	l.render(s)
}

func (l *labeler) sameOwners(o *gpu.Owners) bool {
	return l.owned == (o != nil) && (o == nil || o.Generation == l.generation)
}

func (l *labeler) sameColumns(s *gpu.Snapshot) bool {
	for i := range l.columns {
		if c := &l.columns[i]; !slices.Equal(c.shown, s.Columns[c.index].Values) {
			return false
		}
	}
	return true
}

func (l *labeler) render(s *gpu.Snapshot) {
	t := s.Topology
	l.arena, l.spans, l.rows = l.arena[:0], l.spans[:0], l.rows[:0]
	node := -1
	for row := range t.Devices {
		if t.Devices[row].Entity.Kind == gpu.KindNode {
			node = row
			break
		}
	}
	for row := range t.Devices {
		d := &t.Devices[row]
		l.scratch = l.identity(l.scratch[:0], t, row, false)
		identity := len(l.scratch)
		l.counterLabels(t, row, node)
		own := len(l.scratch)
		if carriesOwners(d.Entity.Kind) {
			l.ownerLabels(l.ownersOf(s, row))
		}
		e := entity{block: l.block(l.scratch, identity), whole: -1}
		e.noOwner.spans = e.block.spans[:own:own]
		if carriesOwners(d.Entity.Kind) && (l.opts.JobCopies || l.opts.VirtualGPUs) {
			e.copies = l.copies(s.Owners.UseOf(row).Owners, identity, own)
		}
		l.scratch = l.identity(l.scratch[:0], t, row, true)
		e.health = l.block(l.scratch, len(l.scratch))
		e.counted = d.Entity.Kind != gpu.KindNode
		l.rows = append(l.rows, e)
	}
	if l.opts.Strict.On {
		l.asTheReference(t)
	}
}

// ownersOf returns the labels of the owner of a row. Under Strict that of a shared entity is the
// last one that has it, since dcgm-exporter lets each overwrite the one before.
func (l *labeler) ownersOf(s *gpu.Snapshot, row int) []gpu.Label {
	labels := s.Owners.Of(row)
	if len(labels) > 0 || !l.opts.Strict.On {
		return labels
	}
	holders := s.Owners.UseOf(row).Owners
	for i := len(holders) - 1; i >= 0; i-- {
		o := &holders[i]
		if l.opts.VirtualGPUs && o.VirtualGPULabels() != nil {
			return nil // each has a copy
		}
		if o.Pod != "" {
			return append([]gpu.Label{
				{Name: "container", Value: o.Container}, {Name: "namespace", Value: o.Namespace}, {Name: "pod", Value: o.Pod},
			}, o.Labels...)
		}
	}
	return nil
}

// jobLabel is the label of an HPC job.
const jobLabel = "hpc_job"

// copies returns a block per virtual GPU of the entity whose labels are in scratch, else per job
// where several have it; nil for none. The first own of the labels are not its owner's.
func (l *labeler) copies(holders []gpu.Owner, identity, own int) []block {
	if l.opts.VirtualGPUs {
		var blocks []block
		for i := range holders {
			if labels := holders[i].VirtualGPULabels(); labels != nil {
				l.scratch = l.scratch[:own]
				l.ownerLabels(labels)
				blocks = append(blocks, l.block(l.scratch, identity))
			}
		}
		if blocks != nil {
			return blocks
		}
	}
	if !l.opts.JobCopies {
		return nil
	}
	var jobs []gpu.Label
	for i := range holders {
		for _, label := range holders[i].Labels {
			if label.Name == jobLabel {
				jobs = append(jobs, label)
			}
		}
	}
	if len(jobs) < 2 {
		return nil
	}
	shared := slices.Clone(l.scratch)
	blocks := make([]block, len(jobs))
	for i, job := range jobs {
		l.scratch = append(l.scratch[:0], shared...)
		at := own
		for at < len(l.scratch) && l.scratch[at].Name < jobLabel {
			at++
		}
		l.scratch = slices.Insert(l.scratch, at, job)
		blocks[i] = l.block(l.scratch, identity)
	}
	return blocks
}

// asTheReference notes which GPUs have no series of their own, and whose values the instances show
// (devicemonitoring.GetMonitoredEntities: a GPU that is partitioned is watched by its instances,
// for fields of whole GPUs too).
func (l *labeler) asTheReference(t *gpu.Topology) {
	for row := range t.Devices {
		if t.Devices[row].Entity.Kind != gpu.KindGPUInstance {
			continue
		}
		if parent := t.ParentRow(row); parent >= 0 {
			l.rows[row].whole = parent
			l.rows[parent].instances = append(l.rows[parent].instances, row)
		}
	}
	for row := range t.Devices {
		if t.Devices[row].Entity.Kind == gpu.KindGPU {
			l.rows[row].hidden = l.opts.Strict.HideGPUs || l.opts.Strict.HidePartitioned && len(l.rows[row].instances) > 0
		}
	}
}

// block renders labels, the first of which (identity in number) distinguish entities apart. None of
// them is blank.
func (l *labeler) block(labels []gpu.Label, identity int) block {
	b := block{start: len(l.arena)}
	first := len(l.spans)
	for i, label := range labels {
		l.arena = append(l.arena, "{,"[min(i, 1)])
		start := len(l.arena)
		l.arena = appendLabel(l.arena, label.Name, label.Value)
		sp := span{
			start: start, end: len(l.arena), name: label.Name,
			hash:     maphash.Bytes(l.seed, l.arena[start:]),
			identity: i < identity,
		}
		b.hash += sp.hash
		l.spans = append(l.spans, sp)
	}
	if len(labels) > 0 {
		l.arena = append(l.arena, '}')
	}
	l.arena = append(l.arena, ' ')
	b.end = len(l.arena)
	b.spans = l.spans[first:len(l.spans):len(l.spans)]
	return b
}

// identity appends the labels that distinguish the entity, in the order of the reference: all that
// its series carry, or what its health series do, which is just enough to join the others. What is
// not known of the entity is left out. The node has no health series.
func (l *labeler) identity(dst []gpu.Label, t *gpu.Topology, row int, health bool) []gpu.Label {
	d := &t.Devices[row]
	add := func(name, value string) {
		if value != "" {
			dst = append(dst, gpu.Label{Name: name, Value: value})
		}
	}
	more := func(name, value string) {
		if !health {
			add(name, value)
		}
	}
	switch d.Entity.Kind {
	case gpu.KindGPU, gpu.KindGPUInstance:
		add("gpu", number(d.GPU))
		add(l.uuidLabel(), d.UUID)
		more("pci_bus_id", d.PCIBusID)
		more("device", "nvidia"+number(d.NVMLIndex))
		more("modelName", l.model(d.Model))
		if d.Entity.Kind != gpu.KindGPU {
			more("GPU_I_PROFILE", d.Profile)
			add("GPU_I_ID", number(d.InstanceID))
		}
	case gpu.KindNVLink:
		add("nvlink", number(d.Link))
		if d.Entity.ParentKind == gpu.KindNVSwitch {
			add("nvswitch", "nvswitch"+number(d.Entity.Parent))
			break
		}
		add("gpu", number(d.GPU))
		add("gpu_uuid", d.UUID)
		more("pci_bus_id", d.PCIBusID)
		more("device", "nvidia"+number(d.NVMLIndex))
		more("model_name", d.Model)
	case gpu.KindNVSwitch:
		add("nvswitch", "nvswitch"+number(d.Entity.ID))
	case gpu.KindCPU:
		add("cpu", number(d.Entity.ID))
		more("cpu_serial", d.Serial)
	case gpu.KindCPUCore:
		add("cpucore", number(d.Entity.ID))
		add("cpu", number(d.Entity.Parent))
	case gpu.KindConnectX:
		add("connectx", number(d.Entity.ID))
		more("pci_bus_id", d.PCIBusID)
	}
	host := l.opts.Hostname
	if l.opts.EngineHost && t.Host != "" {
		host = t.Host
	}
	switch l.opts.HostnameLabel {
	case gpu.HostnameNone:
	case gpu.HostnameUpper:
		more("Hostname", host)
	case gpu.HostnameBoth:
		more("hostname", host)
		more("Hostname", host)
	default:
		more("hostname", host)
	}
	return dst
}

// model returns a model name as the modelName label shows it. The reference leaves model_name of
// links alone, whatever is configured.
func (l *labeler) model(name string) string {
	if l.opts.ReplaceBlanksInModelName {
		return strings.Join(strings.Fields(name), "-")
	}
	return name
}

// counterLabels appends the label-typed counters that apply to row: its own value, else its GPU's if
// it is an instance, else the node's, which any entity may have.
func (l *labeler) counterLabels(t *gpu.Topology, row, node int) {
	parent := -1
	if t.Devices[row].Entity.Kind == gpu.KindGPUInstance {
		parent = t.ParentRow(row)
	}
	for i := range l.columns {
		c := &l.columns[i]
		for _, r := range [...]int{row, parent, node, c.any(t.Devices[row].Entity.Kind)} {
			if r < 0 || r >= len(c.shown) || c.shown[r].IsAbsent() {
				continue
			}
			l.addUnlessTaken(c.name, c.shown[r].String())
			break
		}
	}
}

// any returns a row with a value that holds for entities of a kind too, -1 where there is none:
// what is known of the machine stands on switches, links, CPUs and cores in dcgm-exporter as well.
func (c *labelColumn) any(k gpu.Kind) int {
	switch k {
	case gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore:
		if c.machine {
			return slices.IndexFunc(c.shown, func(v gpu.Value) bool { return !v.IsAbsent() })
		}
	}
	return -1
}

// ownerLabels appends the owner's labels, sorted by name. Of two with one name the first counts.
func (l *labeler) ownerLabels(owner []gpu.Label) {
	first := len(l.scratch)
	for _, label := range owner {
		if label.Value != "" {
			l.addUnlessTaken(text.LabelName(l.ownerName(label.Name)), label.Value)
		}
	}
	slices.SortFunc(l.scratch[first:], func(a, b gpu.Label) int { return strings.Compare(a.Name, b.Name) })
}

// addUnlessTaken appends a label unless one of its name is there.
func (l *labeler) addUnlessTaken(name, value string) {
	for i := range l.scratch {
		if l.scratch[i].Name == name {
			l.dropped++
			return
		}
	}
	l.scratch = append(l.scratch, gpu.Label{Name: name, Value: value})
}

// carriesOwners reports whether the reference puts pod labels on series of this kind.
func carriesOwners(k gpu.Kind) bool {
	return k == gpu.KindGPU || k == gpu.KindGPUInstance
}

func (l *labeler) uuidLabel() string {
	if l.opts.OldNamespace {
		return "uuid"
	}
	return "UUID"
}

func (l *labeler) ownerName(name string) string {
	if l.opts.OldNamespace {
		switch name {
		case "pod":
			return "pod_name"
		case "namespace":
			return "pod_namespace"
		case "container":
			return "container_name"
		}
	}
	return name
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
