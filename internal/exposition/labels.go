package exposition

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// labels are the rendered labels of a snapshot's entities.
type labels struct {
	opts    Options
	seed    maphash.Seed
	rows    []rowLabels
	columns []labelColumn
	differ  bool // no two entities have the same labels
	dropped int

	withhold bool // owners have no labels of their own: see Limit
	withheld int  // labels

	// What all blocks are made in, and scratch.
	text    []byte
	spans   []span
	scratch []gpu.Label
}

// A labelColumn is a label-typed counter.
type labelColumn struct {
	*gpu.Column
	name string // valid
}

// A rowLabels is the rendered labels of the entity of a row.
type rowLabels struct {
	block   [1]block // what its series carry
	copies  []block  // what they carry instead, once for each; nil for block
	noOwner block    // block without its owner's labels: its spans, of the text of block
	health  block    // what its health series carry
	counted bool     // it has health series

	// Under Strict:
	hidden    bool  // it has no series of fields
	whole     int   // the row of the GPU that it is an instance of, -1 for none
	instances []int // the rows of its instances
}

// blocks returns what the series of the row carry, once for each; the device's own alone on request.
func (r *rowLabels) blocks(device bool) []block {
	if r.copies == nil || device {
		return r.block[:]
	}
	return r.copies
}

// A block is a set of labels as a page has it: {name="value",…} with the space that separates it
// from the value, or the space alone.
type block struct {
	text   []byte
	spans  []span
	hash   uint64
	labels int // that it was rendered of
}

// A span is one label of a block.
type span struct {
	start, end int // in the text of its block
	name       string
	hash       uint64
	identity   bool // it distinguishes entities: nothing may replace it
}

// contradicts reports whether one of the labels has another value than the label of that name by
// which the block distinguishes its entity.
func (b *block) contradicts(list []gpu.Label) bool {
	for i := range b.spans {
		for _, l := range list {
			if sp := &b.spans[i]; sp.identity && sp.name == l.Name && string(b.text[sp.start:sp.end]) != string(appendLabel(nil, l.Name, l.Value)) {
				return true
			}
		}
	}
	return false
}

// newLabels renders the labels of each entity of a snapshot once, in the encoder's working memory.
// Of two label-typed counters with one name the first counts. Owners' own labels can be withheld.
func newLabels(e *Encoder, s *gpu.Snapshot, withhold bool) *labels {
	l := &labels{opts: e.opts, seed: e.seed, withhold: withhold, text: e.text[:0], spans: e.spans[:0]}
	t := s.Topology
	if t == nil {
		return l
	}
	for i := range s.Columns {
		if c := &s.Columns[i]; c.Counter.Type == gpu.MetricLabel {
			l.columns = append(l.columns, labelColumn{Column: c, name: text.LabelName(c.Counter.Name)})
		}
	}
	slices.SortStableFunc(l.columns, func(a, b labelColumn) int { return strings.Compare(a.name, b.name) })
	node := slices.IndexFunc(t.Devices, func(d gpu.Device) bool { return d.Entity.Kind == gpu.KindNode })
	rows := len(t.Devices)
	l.rows = make([]rowLabels, rows)
	seen := make(map[uint64]struct{}, rows)
	blocks := 0
	for row := range t.Devices {
		d, r := &t.Devices[row], &l.rows[row]
		l.scratch = l.identity(l.scratch[:0], t, row, false)
		identity := len(l.scratch)
		l.counterLabels(t, row, node)
		own := len(l.scratch)
		owned := d.Entity.Kind == gpu.KindGPU || d.Entity.Kind == gpu.KindGPUInstance // as in the reference
		if owned {
			l.ownerLabels(l.ownersOf(s, row))
		}
		r.block[0] = l.block(l.scratch, identity)
		r.noOwner = block{text: r.block[0].text, spans: r.block[0].spans[:own:own]}
		if owned && (l.opts.JobCopies || l.opts.VirtualGPUs) {
			r.copies = l.copies(s.Owners.UseOf(row).Owners, identity, own)
		}
		for _, b := range r.blocks(false) {
			seen[b.hash] = struct{}{}
			blocks++
		}
		l.scratch = l.identity(l.scratch[:0], t, row, true)
		r.health = l.block(l.scratch, len(l.scratch))
		r.counted, r.whole = d.Entity.Kind != gpu.KindNode, -1
	}
	l.differ = len(seen) == blocks
	if l.opts.Strict.On {
		l.asTheReference(t)
	}
	return l
}

// ownersOf returns the labels of the owner of a row. Under Strict that of a shared entity is the
// last one that has it, since dcgm-exporter lets each overwrite the one before.
func (l *labels) ownersOf(s *gpu.Snapshot, row int) []gpu.Label {
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
func (l *labels) copies(holders []gpu.Owner, identity, own int) []block {
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
func (l *labels) asTheReference(t *gpu.Topology) {
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
func (l *labels) block(list []gpu.Label, identity int) block {
	var b block
	start, first := len(l.text), len(l.spans)
	for i, label := range list {
		l.text = append(l.text, "{,"[min(i, 1)])
		at := len(l.text)
		l.text = appendLabel(l.text, label.Name, label.Value)
		sp := span{start: at - start, end: len(l.text) - start, name: label.Name, hash: maphash.Bytes(l.seed, l.text[at:]), identity: i < identity}
		b.hash += sp.hash
		l.spans = append(l.spans, sp)
	}
	if len(list) > 0 {
		l.text = append(l.text, '}')
	}
	l.text = append(l.text, ' ')
	b.text, b.spans = l.text[start:len(l.text):len(l.text)], l.spans[first:len(l.spans):len(l.spans)]
	return b
}

// identity appends the labels that distinguish the entity, in the order of the reference: all that
// its series carry, or what its health series do, which is just enough to join the others. What is
// not known of the entity is left out. The node has no health series.
func (l *labels) identity(dst []gpu.Label, t *gpu.Topology, row int, health bool) []gpu.Label {
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
func (l *labels) model(name string) string {
	if l.opts.ReplaceBlanksInModelName {
		return strings.Join(strings.Fields(name), "-")
	}
	return name
}

// counterLabels appends the label-typed counters that apply to row: its own value, else its GPU's if
// it is an instance, else the node's, which any entity may have.
func (l *labels) counterLabels(t *gpu.Topology, row, node int) {
	parent := -1
	if t.Devices[row].Entity.Kind == gpu.KindGPUInstance {
		parent = t.ParentRow(row)
	}
	for i := range l.columns {
		c := &l.columns[i]
		for _, r := range [...]int{row, parent, node, c.any(t.Devices[row].Entity.Kind)} {
			if r < 0 || r >= len(c.Values) || c.Values[r].IsAbsent() {
				continue
			}
			l.addUnlessTaken(c.name, c.Values[r].String())
			break
		}
	}
}

// any returns a row with a value that holds for entities of a kind too, -1 where there is none:
// what is known of the machine stands on switches, links, CPUs and cores in dcgm-exporter as well.
func (c *labelColumn) any(k gpu.Kind) int {
	switch k {
	case gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore:
		if c.Counter.OfMachine {
			return slices.IndexFunc(c.Values, func(v gpu.Value) bool { return !v.IsAbsent() })
		}
	}
	return -1
}

// ownerLabels appends the owner's labels, sorted by name. Of two with one name the first counts.
func (l *labels) ownerLabels(owner []gpu.Label) {
	first := len(l.scratch)
	for _, label := range owner {
		if label.Value != "" && !l.withholds(label.Name) {
			l.addUnlessTaken(text.LabelName(l.ownerName(label.Name)), label.Value)
		}
	}
	slices.SortFunc(l.scratch[first:], func(a, b gpu.Label) int { return strings.Compare(a.Name, b.Name) })
}

// withholds reports whether a label of an owner is left out, and counts it.
func (l *labels) withholds(name string) bool {
	if !l.withhold || !l.opts.Limit.Own(name) {
		return false
	}
	l.withheld++
	return true
}

// addUnlessTaken appends a label unless one of its name is there.
func (l *labels) addUnlessTaken(name, value string) {
	for i := range l.scratch {
		if l.scratch[i].Name == name {
			l.dropped++
			return
		}
	}
	l.scratch = append(l.scratch, gpu.Label{Name: name, Value: value})
}

// owned returns the labels of a series beyond those of its entity alone: its own owner's, under the
// names that owners' labels have on this page, and what else it says. The result lives until the
// next call.
func (l *labels) owned(sr *gpu.Series) []gpu.Label {
	if len(sr.Owner) == 0 {
		return sr.Labels
	}
	l.scratch = l.scratch[:0]
	for _, label := range sr.Owner {
		if l.withholds(label.Name) {
			continue
		}
		l.scratch = append(l.scratch, gpu.Label{Name: l.ownerName(label.Name), Value: label.Value})
	}
	l.scratch = append(l.scratch, sr.Labels...)
	return l.scratch
}

func (l *labels) uuidLabel() string {
	if l.opts.OldNamespace {
		return "uuid"
	}
	return "UUID"
}

func (l *labels) ownerName(name string) string {
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
