package exposition

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// labels holds the rendered labels of all entities. It is reused for later snapshots with the same topology, owners and
// label-typed counters.
type labels struct {
	opts       *Options
	topology   *gpu.Topology
	owners     *gpu.Owners
	columns    []labelColumn
	dropOwners bool // leave out the owners' own labels: see Limit

	rows     []rowLabels
	differ   bool // no two entities share all labels
	dropped  int
	withheld int

	list []gpu.Label // scratch
}

// A labelColumn holds the values of a label-typed counter.
type labelColumn struct {
	counter *gpu.Counter
	values  []gpu.Value // values by row
	name    string      // valid label name
}

// A rowLabels holds the rendered labels of one entity.
type rowLabels struct {
	own     []block // the only element has the labels of the device's series
	copies  []block // one element for each copy of the series; equal to own if there is one series
	noOwner block   // labels without the owner's
	health  block   // labels of its health series
}

// A block is a rendered label set and the space before the value: {name="value",…} and a space, or only a space.
type block struct {
	text   []byte
	spans  []span
	hash   uint64
	labels int // number of labels before invalid ones were dropped; set for loose blocks
}

// A span is one label in a block.
type span struct {
	start, end int // range in the text of the block
	name       string
	hash       uint64
	identity   bool // the label identifies the entity; no other label may replace it
}

// newBlock renders the non-empty labels of list. The first identity labels identify the entity.
func newBlock(seed maphash.Seed, list []gpu.Label, identity int) block {
	b := block{text: make([]byte, 0, 32*len(list)+2), spans: make([]span, len(list))}
	for i, label := range list {
		b.text = append(b.text, "{,"[min(i, 1)])
		at := len(b.text)
		b.text = appendLabel(b.text, label.Name, label.Value)
		hash := maphash.Bytes(seed, b.text[at:])
		b.spans[i] = span{start: at, end: len(b.text), name: label.Name, hash: hash, identity: i < identity}
		b.hash += hash
	}
	if len(list) > 0 {
		b.text = append(b.text, '}')
	}
	b.text = append(b.text, ' ')
	return b
}

// labelsOf returns the labels of a snapshot's entities. It reuses those of the latest page if nothing has changed.
func (e *Encoder) labelsOf(s *gpu.Snapshot, dropOwners bool) *labels {
	var columns []labelColumn
	for i := range s.Columns {
		if c := &s.Columns[i]; c.Counter.Type == gpu.MetricLabel {
			name := text.LabelName(c.Counter.Name)
			columns = append(columns, labelColumn{counter: c.Counter, values: c.Values, name: name})
		}
	}
	slices.SortStableFunc(columns, func(a, b labelColumn) int { return strings.Compare(a.name, b.name) })
	owners := s.Owners
	if e.opts.OwnersOnInfo {
		owners = nil
	}
	equal := func(a, b labelColumn) bool { return a.counter == b.counter && slices.Equal(a.values, b.values) }
	if l := e.labels; l != nil && l.topology == s.Topology && l.owners == owners && l.dropOwners == dropOwners &&
		slices.EqualFunc(l.columns, columns, equal) {
		return l
	}
	for i := range columns {
		columns[i].values = slices.Clone(columns[i].values) // do not keep the snapshot's slice alive
	}
	l := &labels{opts: &e.opts, topology: s.Topology, owners: owners, columns: columns, dropOwners: dropOwners}
	if l.topology != nil {
		l.render(e.seed)
	}
	e.labels = l
	return l
}

// render renders the labels of each entity. If two label-typed counters have the same name, the first one wins.
func (l *labels) render(seed maphash.Seed) {
	devices := l.topology.Devices
	node := slices.IndexFunc(devices, func(d gpu.Device) bool { return d.Entity.Kind == gpu.KindNode })
	l.rows = make([]rowLabels, len(devices))
	seen := map[uint64]struct{}{}
	blocks := 0
	for row := range devices {
		kind, r := devices[row].Entity.Kind, &l.rows[row]
		l.identity(row)
		isDetail := func(label gpu.Label) bool { return slices.Contains(details, label.Name) }
		joined := slices.DeleteFunc(slices.Clone(l.list), isDetail)
		r.health = newBlock(seed, joined, len(joined))

		l.list = l.host(l.list)
		identity := len(l.list)
		l.counterLabels(row, node)
		own := len(l.list)
		if kind == gpu.KindGPU || kind == gpu.KindGPUInstance { // as in NVIDIA's dcgm-exporter
			for _, owner := range l.owners.CopiesOf(row) {
				l.ownerLabels(owner)
				r.copies = append(r.copies, newBlock(seed, l.list, identity))
				l.list = l.list[:own]
			}
			l.ownerLabels(l.owners.Of(row))
		}
		r.own = []block{newBlock(seed, l.list, identity)}
		r.noOwner = block{text: r.own[0].text, spans: r.own[0].spans[:own:own]}
		if r.copies == nil || l.dropOwners {
			r.copies = r.own
		}
		for _, b := range r.copies {
			seen[b.hash] = struct{}{}
			blocks++
		}
	}
	l.differ = len(seen) == blocks
}

// details lists labels that describe an entity. Health series have only the labels that are needed to join them.
var details = []string{"pci_bus_id", "device", "modelName", "model_name", "GPU_I_PROFILE", "cpu_serial"}

// identity sets the list to the labels that identify an entity, in NVIDIA's order. Unknown labels are left out.
func (l *labels) identity(row int) {
	d := &l.topology.Devices[row]
	l.list = l.list[:0]
	add := func(name, value string) {
		if value != "" {
			l.list = append(l.list, gpu.Label{Name: name, Value: value})
		}
	}
	switch d.Entity.Kind {
	case gpu.KindGPU, gpu.KindGPUInstance:
		add("gpu", number(d.GPU))
		add(l.opts.name("UUID"), d.UUID)
		add("pci_bus_id", d.PCIBusID)
		add("device", "nvidia"+number(d.NVMLIndex))
		model := d.Model // NVIDIA replaces blanks only here, and not in the model_name label of links
		if l.opts.ReplaceBlanksInModelName {
			model = strings.Join(strings.Fields(model), "-")
		}
		add("modelName", model)
		if d.Entity.Kind == gpu.KindGPUInstance {
			add("GPU_I_PROFILE", d.Profile)
			add(gpu.InstanceLabel, number(d.InstanceID))
		}
	case gpu.KindNVLink:
		add("nvlink", number(d.Link))
		if d.Entity.ParentKind == gpu.KindNVSwitch {
			add("nvswitch", "nvswitch"+number(d.Entity.Parent))
			break
		}
		add("gpu", number(d.GPU))
		add("gpu_uuid", d.UUID)
		add("pci_bus_id", d.PCIBusID)
		add("device", "nvidia"+number(d.NVMLIndex))
		add("model_name", d.Model)
	case gpu.KindNVSwitch:
		add("nvswitch", "nvswitch"+number(d.Entity.ID))
	case gpu.KindCPU:
		add("cpu", number(d.Entity.ID))
		add("cpu_serial", d.Serial)
	case gpu.KindCPUCore:
		add("cpucore", number(d.Entity.ID))
		add("cpu", number(d.Entity.Parent))
	case gpu.KindConnectX:
		add("connectx", number(d.Entity.ID))
		add("pci_bus_id", d.PCIBusID)
	}
}

// host appends the host label, under each of its names.
func (l *labels) host(dst []gpu.Label) []gpu.Label {
	host := l.opts.Hostname
	if l.opts.EngineHost {
		host = cmp.Or(l.topology.Host, host)
	}
	if host != "" {
		for _, name := range l.opts.HostLabels {
			dst = append(dst, gpu.Label{Name: name, Value: host})
		}
	}
	return dst
}

// counterLabels appends the label-typed counters of a row. If a counter has no value in the row, the value of the
// instance's GPU is used, then that of the node. As in NVIDIA's dcgm-exporter, switches, links, CPUs and cores get the
// values of counters that apply to the whole machine, whichever row has them.
func (l *labels) counterLabels(row, node int) {
	parent, machine := -1, false
	switch l.topology.Devices[row].Entity.Kind {
	case gpu.KindGPUInstance:
		parent = l.topology.ParentRow(row)
	case gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore:
		machine = true
	}
	for i := range l.columns {
		c := &l.columns[i]
		rows := []int{row, parent, node}
		if machine && c.counter.OfMachine {
			rows = append(rows, slices.IndexFunc(c.values, func(v gpu.Value) bool { return !v.IsAbsent() }))
		}
		for _, r := range rows {
			if r >= 0 && r < len(c.values) && !c.values[r].IsAbsent() {
				l.addUnlessTaken(c.name, c.values[r].String())
				break
			}
		}
	}
}

// ownerLabels appends the owner's labels, sorted by name. If two have the same name, the first one wins.
func (l *labels) ownerLabels(owner []gpu.Label) {
	first := len(l.list)
	for _, label := range owner {
		switch {
		case label.Value == "":
		case l.isDropped(label.Name):
			l.withheld++
		default:
			l.addUnlessTaken(text.LabelName(l.opts.name(label.Name)), label.Value)
		}
	}
	slices.SortFunc(l.list[first:], func(a, b gpu.Label) int { return strings.Compare(a.Name, b.Name) })
}

// isDropped reports whether an owner's label is left out.
func (l *labels) isDropped(name string) bool { return l.dropOwners && l.opts.Limit.Own(name) }

// addUnlessTaken appends a label unless there is one with the same name.
func (l *labels) addUnlessTaken(name, value string) {
	if has(l.list, name) {
		l.dropped++
		return
	}
	l.list = append(l.list, gpu.Label{Name: name, Value: value})
}

func has(list []gpu.Label, name string) bool {
	return slices.ContainsFunc(list, func(l gpu.Label) bool { return l.Name == name })
}

// oldNames maps label names to those of Options.OldNamespace.
var oldNames = map[string]string{
	"UUID": "uuid", "pod": "pod_name", "namespace": "pod_namespace", "container": "container_name",
}

// name returns the name of a label on the page.
func (o *Options) name(label string) string {
	if o.OldNamespace {
		return cmp.Or(oldNames[label], label)
	}
	return label
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
