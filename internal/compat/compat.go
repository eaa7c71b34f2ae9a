package compat

import (
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Options select what a page has in common with that of NVIDIA's exporter. The zero value changes nothing.
type Options struct {
	// Strict repeats the values of a GPU for its instances, hides GPUs that NVIDIA's exporter does not watch, and
	// labels a shared device with one of its owners.
	Strict bool
	// Devices are the GPUs and instances that the user selected. They decide which GPUs Strict hides.
	Devices gpu.Selector
	// JobCopies repeats the series of a device for each HPC job that shares it. Without it, such series have no job
	// label.
	JobCopies bool
	// VirtualGPUs repeats the series of a shared GPU for each replica that a pod holds.
	VirtualGPUs bool
}

// Reads returns the GPUs and instances to read. Strict mode shows values of GPUs for their instances, so it needs the
// GPUs even if only instances are selected.
func (o Options) Reads() gpu.Selector {
	sel := o.Devices
	if o.Strict && sel.Minor && !sel.Major {
		sel.Major, sel.MajorIDs = true, nil
	}
	return sel
}

// Omits reports whether a family is left out of the page. A nil family is a DCGM field.
func (o Options) Omits(f *catalog.Family) bool { return o.Strict && f != nil && f.Extra }

// hides reports whether a GPU has no series of fields. NVIDIA's exporter watches a partitioned GPU through its
// instances (devicemonitoring.GetMonitoredEntities).
func (o Options) hides(partitioned bool) bool {
	return o.Devices.Flex && partitioned || !o.Devices.Flex && !o.Devices.Major
}

// AppendFloat appends a number with six decimals, as NVIDIA's exporter formats doubles (gpu_collector.go, toString).
func AppendFloat(dst []byte, v float64) []byte { return strconv.AppendFloat(dst, v, 'f', 6, 64) }

// A Rewriter turns the snapshots of the exporter into those of the selected page. Only one goroutine may use it.
type Rewriter struct {
	opts   Options
	page   gpu.Snapshot // the latest result
	owners ownersCache

	// Strict mode only:
	topology *gpu.Topology
	gpus     []wholeGPU // GPUs of the topology that are hidden or have instances
	hidden   []bool     // by row of the topology
	columns  []gpu.Column
	values   [][]gpu.Value // by column
	families []gpu.Family
	series   []gpu.Series
}

// A wholeGPU is a GPU whose series are hidden or repeated.
type wholeGPU struct {
	row       int
	hidden    bool
	instances []int // rows
}

// New returns a Rewriter.
func New(opts Options) *Rewriter { return &Rewriter{opts: opts} }

// Rewrite returns the snapshot of the page. It does not change s, but the result shares memory with it. The result is
// valid until the next call.
func (r *Rewriter) Rewrite(s *gpu.Snapshot) *gpu.Snapshot {
	if !r.opts.Strict && !r.opts.JobCopies && !r.opts.VirtualGPUs {
		return s
	}
	r.page = *s
	r.page.Owners = r.owners.rewrite(r.opts, s.Owners)
	if r.opts.Strict && s.Topology != nil {
		r.bind(s.Topology)
		r.page.Columns = r.rewriteColumns(s.Columns)
		r.page.Families = r.rewriteFamilies(s.Families)
	}
	return &r.page
}

// bind finds the GPUs of a topology that are hidden or have instances.
func (r *Rewriter) bind(t *gpu.Topology) {
	if r.topology == t {
		return
	}
	r.topology, r.gpus, r.hidden = t, nil, make([]bool, len(t.Devices))
	instances := make([][]int, len(t.Devices))
	for row := range t.Devices {
		if parent := t.ParentRow(row); parent >= 0 && t.Devices[row].Entity.Kind == gpu.KindGPUInstance {
			instances[parent] = append(instances[parent], row)
		}
	}
	for row := range t.Devices {
		if t.Devices[row].Entity.Kind != gpu.KindGPU {
			continue
		}
		g := wholeGPU{row: row, hidden: r.opts.hides(len(instances[row]) > 0), instances: instances[row]}
		r.hidden[row] = g.hidden
		if g.hidden || len(g.instances) > 0 {
			r.gpus = append(r.gpus, g)
		}
	}
}

// rewriteColumns returns the columns of the page.
func (r *Rewriter) rewriteColumns(columns []gpu.Column) []gpu.Column {
	if len(r.gpus) == 0 {
		return columns
	}
	r.columns = append(r.columns[:0], columns...)
	for len(r.values) < len(columns) {
		r.values = append(r.values, nil)
	}
	for i := range r.columns {
		if c := &r.columns[i]; c.Counter.Type != gpu.MetricLabel {
			r.values[i] = r.rewriteValues(r.values[i][:0], c)
			c.Values = r.values[i]
		}
	}
	return r.columns
}

// rewriteValues appends the values of a column: an instance without a value has that of its GPU, and a hidden GPU has
// none.
func (r *Rewriter) rewriteValues(dst []gpu.Value, c *gpu.Column) []gpu.Value {
	dst = append(dst, c.Values...)
	for i := range r.gpus {
		g := &r.gpus[i]
		if g.row >= len(dst) {
			continue
		}
		for _, row := range g.instances {
			if c.Counter.OfGPUs && row < len(dst) && dst[row].IsAbsent() {
				dst[row] = dst[g.row]
			}
		}
		if g.hidden {
			dst[g.row] = gpu.Value{}
		}
	}
	return dst
}

// rewriteFamilies returns the derived families of the page.
func (r *Rewriter) rewriteFamilies(families []gpu.Family) []gpu.Family {
	r.families, r.series = append(r.families[:0], families...), r.series[:0]
	for i := range r.families {
		f := &r.families[i]
		start := len(r.series)
		switch {
		case f.OwnersOnly:
			r.appendShares(f.Series)
		case f.OfGPUs && len(r.gpus) > 0:
			r.appendRepeated(f.Series)
		case f.LikeField && len(r.gpus) > 0:
			r.appendShown(f.Series)
		default:
			continue
		}
		f.Series = r.series[start:len(r.series):len(r.series)]
	}
	return r.families
}

// appendShares appends the shares of owners. An unknown share is 0.
func (r *Rewriter) appendShares(list []gpu.Series) {
	for _, sr := range list {
		if sr.Value.IsAbsent() {
			sr.Value = gpu.Int(0)
		}
		r.series = append(r.series, sr)
	}
}

// appendShown appends the series of devices that are not hidden.
func (r *Rewriter) appendShown(list []gpu.Series) {
	for _, sr := range list {
		if !r.isHidden(&sr) {
			r.series = append(r.series, sr)
		}
	}
}

// appendRepeated appends the series of GPUs that are not hidden, and repeats the series of each GPU for its
// instances, as NVIDIA's exporter does (expCollector.getMetrics).
func (r *Rewriter) appendRepeated(list []gpu.Series) {
	for _, sr := range list {
		if !r.isHidden(&sr) {
			r.series = append(r.series, sr)
		}
		if sr.NoOwner {
			continue
		}
		i := slices.IndexFunc(r.gpus, func(g wholeGPU) bool { return g.row == sr.Row })
		if i < 0 {
			continue
		}
		for _, row := range r.gpus[i].instances {
			if concerns(sr.Labels, &r.topology.Devices[row]) {
				repeated := sr
				repeated.Row = row
				r.series = append(r.series, repeated)
			}
		}
	}
}

// isHidden reports whether a series is left out because its GPU is hidden. Series with owners of their own stay.
func (r *Rewriter) isHidden(sr *gpu.Series) bool {
	return !sr.NoOwner && sr.Row >= 0 && sr.Row < len(r.hidden) && r.hidden[sr.Row]
}

// concerns reports whether a GPU's series with these labels can be repeated for an instance. It cannot if it names
// another one.
func concerns(labels []gpu.Label, instance *gpu.Device) bool {
	for _, l := range labels {
		if l.Name == gpu.InstanceLabel {
			return l.Value == strconv.FormatUint(uint64(instance.InstanceID), 10)
		}
	}
	return true
}
