// Package compat makes pages that look like those of NVIDIA's dcgm-exporter.
//
// A Rewriter changes a snapshot before it is rendered as a page. It implements three settings: --compatibility=strict,
// --kubernetes-virtual-gpus and --owner-labels=copies. AppendFloat formats numbers for strict mode.
//
// Strict mode also acts in other places:
//   - Package config changes the defaults of other settings, such as --enable-health-metrics (rules.go, strict).
//   - Package app asks Options.Reads and Options.Omits which entities and families to read, gives no advice about the
//     verdict (counters.go), and selects the format of numbers and of empty HELP lines (pipeline.go). The subcommand
//     check says which families are left out.
//   - Three quirks of NVIDIA's exporter change how a value is computed, not how it is shown. The packages that compute
//     them have an option for each: snapshot.Facts.AsReported, events.Options.LastXIDAsStored and
//     gpu.Plan.KeepContradicted. Package app sets them (pipeline.go, counters.go).
package compat

import (
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// jobLabel is the name of the label for an HPC job.
const jobLabel = "hpc_job"

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

// AppendFloat appends a number with six decimals, as NVIDIA's exporter formats doubles (gpu_collector.go, toString).
func AppendFloat(dst []byte, v float64) []byte { return strconv.AppendFloat(dst, v, 'f', 6, 64) }

// A Rewriter turns the snapshots of the exporter into those of the selected page. Only one goroutine may use it.
type Rewriter struct {
	opts Options
	page gpu.Snapshot // the latest result
	from *gpu.Owners  // the owners that page.Owners were made from, so that equal owners have equal pointers

	// Strict mode only:
	topology  *gpu.Topology
	hidden    []bool  // by row: the GPU has no series of fields
	instances [][]int // by row: rows of the GPU's instances
	columns   []gpu.Column
	values    [][]gpu.Value // by column
	families  []gpu.Family
	series    []gpu.Series
}

// New returns a Rewriter.
func New(opts Options) *Rewriter { return &Rewriter{opts: opts} }

// Rewrite returns the snapshot of the page. It does not change s, but the result shares memory with it. The result is
// valid until the next call.
func (r *Rewriter) Rewrite(s *gpu.Snapshot) *gpu.Snapshot {
	if !r.opts.Strict && !r.opts.JobCopies && !r.opts.VirtualGPUs {
		return s
	}
	owners := r.page.Owners
	if s.Owners != r.from {
		r.from, owners = s.Owners, r.opts.rewriteOwners(s.Owners)
	}
	r.page = *s
	r.page.Owners = owners
	if r.opts.Strict && s.Topology != nil {
		r.bind(s.Topology)
		r.rewriteColumns(s.Columns)
		r.rewriteFamilies(s.Families)
		r.page.Columns, r.page.Families = r.columns, r.families
	}
	return &r.page
}

// bind finds the GPUs of a topology that are hidden or have instances. NVIDIA's exporter watches a partitioned GPU
// through its instances (devicemonitoring.GetMonitoredEntities).
func (r *Rewriter) bind(t *gpu.Topology) {
	if r.topology == t {
		return
	}
	r.topology, r.hidden, r.instances = t, make([]bool, len(t.Devices)), make([][]int, len(t.Devices))
	for _, row := range t.RowsOf(gpu.KindsOf(gpu.KindGPUInstance)) {
		if parent := t.ParentRow(row); parent >= 0 {
			r.instances[parent] = append(r.instances[parent], row)
		}
	}
	for _, row := range t.RowsOf(gpu.KindsOf(gpu.KindGPU)) {
		sel := &r.opts.Devices
		r.hidden[row] = sel.Flex && r.instances[row] != nil || !sel.Flex && !sel.Major
	}
}

// rewriteColumns sets the columns of the page: an instance without a value has that of its GPU, and a hidden GPU has
// none.
func (r *Rewriter) rewriteColumns(columns []gpu.Column) {
	r.columns = append(r.columns[:0], columns...)
	for len(r.values) < len(columns) {
		r.values = append(r.values, nil)
	}
	for i := range r.columns {
		c := &r.columns[i]
		if c.Counter.Type == gpu.MetricLabel {
			continue
		}
		values := append(r.values[i][:0], c.Values...)
		for row, instances := range r.instances {
			for _, instance := range instances {
				if c.Counter.OfGPUs && values[instance].IsAbsent() {
					values[instance] = values[row]
				}
			}
			if r.hidden[row] {
				values[row] = gpu.Value{}
			}
		}
		r.values[i], c.Values = values, values
	}
}

// rewriteFamilies sets the derived families of the page. An unknown share of an owner is 0. Hidden GPUs have no series,
// except those with owners of their own. As in NVIDIA's exporter, series of GPUs are repeated for their instances
// (expCollector.getMetrics).
func (r *Rewriter) rewriteFamilies(families []gpu.Family) {
	r.families, r.series = append(r.families[:0], families...), r.series[:0]
	for i := range r.families {
		f := &r.families[i]
		if !f.OwnersOnly && !f.OfGPUs && !f.LikeField {
			continue
		}
		start := len(r.series)
		for _, x := range f.Series {
			if f.OwnersOnly && x.Value.IsAbsent() {
				x.Value = gpu.Int(0)
			}
			ofDevice := !x.NoOwner && x.Row >= 0
			if !ofDevice || !r.hidden[x.Row] {
				r.series = append(r.series, x)
			}
			if !ofDevice || !f.OfGPUs {
				continue
			}
			for _, row := range r.instances[x.Row] {
				if concerns(x.Labels, &r.topology.Devices[row]) {
					x.Row = row
					r.series = append(r.series, x)
				}
			}
		}
		f.Series = r.series[start:len(r.series):len(r.series)]
	}
}

// concerns reports whether a GPU's series with these labels can be repeated for an instance. It cannot if the labels
// name another instance.
func concerns(labels []gpu.Label, instance *gpu.Device) bool {
	id := strconv.FormatUint(uint64(instance.InstanceID), 10)
	return !slices.ContainsFunc(labels, func(l gpu.Label) bool { return l.Name == gpu.InstanceLabel && l.Value != id })
}

// rewriteOwners returns the owners with the labels and copies that the options select. It does not change owners.
func (o *Options) rewriteOwners(owners *gpu.Owners) *gpu.Owners {
	if owners == nil {
		return nil
	}
	page := *owners
	rows := max(len(owners.Labels), len(owners.Uses))
	page.Labels, page.Copies = make([][]gpu.Label, rows), make([][][]gpu.Label, rows)
	for row := range rows {
		page.Labels[row] = o.ownerLabels(owners, row)
		page.Copies[row] = o.copies(owners.UseOf(row).Owners, page.Labels[row])
	}
	return &page
}

// ownerLabels returns the labels of the owner of a row. In strict mode, a shared device has the labels of its last
// owner and its last container, since NVIDIA's exporter overwrites earlier ones. The owner of a virtual GPU is only
// on its copy, even if it is the only owner; otherwise sums by pod would count it twice.
func (o *Options) ownerLabels(all *gpu.Owners, row int) []gpu.Label {
	labels, owners := all.Of(row), all.UseOf(row).Owners
	isVirtual := func(o gpu.Owner) bool { return o.VirtualGPULabels() != nil }
	if o.VirtualGPUs && slices.ContainsFunc(owners, isVirtual) {
		return nil
	}
	for i := len(owners) - 1; i >= 0 && o.Strict; i-- {
		last := &owners[i]
		switch {
		case last.Pod == "":
		case len(labels) == 0:
			return last.AllLabels()
		case has(labels, "pod") && !has(labels, "container"):
			return append(slices.Clone(labels), gpu.Label{Name: "container", Value: last.Container})
		}
	}
	return labels
}

// copies returns the owner labels for each copy of a row's series: one per virtual GPU, or one per job if several jobs
// share the device. It returns nil if there are no copies.
func (o *Options) copies(owners []gpu.Owner, labels []gpu.Label) (virtual [][]gpu.Label) {
	var jobs [][]gpu.Label
	for i := range owners {
		if labels := owners[i].VirtualGPULabels(); labels != nil && o.VirtualGPUs {
			virtual = append(virtual, labels)
		}
		for _, label := range owners[i].Labels {
			if label.Name == jobLabel && o.JobCopies {
				jobs = append(jobs, append([]gpu.Label{label}, labels...))
			}
		}
	}
	if virtual == nil && len(jobs) > 1 {
		return jobs
	}
	return virtual
}

func has(labels []gpu.Label, name string) bool {
	return slices.ContainsFunc(labels, func(l gpu.Label) bool { return l.Name == name })
}
