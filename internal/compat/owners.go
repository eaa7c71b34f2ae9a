package compat

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// jobLabel is the name of the label for an HPC job.
const jobLabel = "hpc_job"

// An ownersCache holds the latest owners and their rewritten form, so that equal owners have equal pointers.
type ownersCache struct{ from, to *gpu.Owners }

// rewrite returns the owners for the page.
func (c *ownersCache) rewrite(opts Options, owners *gpu.Owners) *gpu.Owners {
	if owners == nil {
		return nil
	}
	if c.from == owners {
		return c.to
	}
	page := *owners
	rows := max(len(owners.Labels), len(owners.Uses))
	page.Labels, page.Copies = make([][]gpu.Label, rows), make([][][]gpu.Label, rows)
	for row := range rows {
		page.Labels[row] = ownerLabels(opts, owners, row)
		page.Copies[row] = copies(opts, owners, row)
	}
	*c = ownersCache{from: owners, to: &page}
	return &page
}

// ownerLabels returns the labels of the owner of a row. In strict mode, a shared device has the labels of its last
// owner and its last container, since NVIDIA's exporter overwrites earlier ones. The owner of a virtual GPU is only
// on its copy, even if it is the only owner; otherwise sums by pod would count it twice.
func ownerLabels(opts Options, o *gpu.Owners, row int) []gpu.Label {
	labels, owners := o.Of(row), o.UseOf(row).Owners
	isVirtual := func(o gpu.Owner) bool { return o.VirtualGPULabels() != nil }
	if opts.VirtualGPUs && slices.ContainsFunc(owners, isVirtual) {
		return nil
	}
	if !opts.Strict {
		return labels
	}
	for i := len(owners) - 1; i >= 0; i-- {
		o := &owners[i]
		switch {
		case o.Pod == "":
		case len(labels) == 0:
			return o.AllLabels()
		case has(labels, "pod") && !has(labels, "container"):
			return append(slices.Clone(labels), gpu.Label{Name: "container", Value: o.Container})
		}
	}
	return labels
}

// copies returns the owner labels for each copy of the row's series: one per virtual GPU, or one per job if several
// jobs share the device. It returns nil if there are no copies.
func copies(opts Options, o *gpu.Owners, row int) (list [][]gpu.Label) {
	owners := o.UseOf(row).Owners
	for i := range owners {
		if labels := owners[i].VirtualGPULabels(); labels != nil && opts.VirtualGPUs {
			list = append(list, labels)
		}
	}
	if list != nil || !opts.JobCopies {
		return list
	}
	for i := range owners {
		for _, label := range owners[i].Labels {
			if label.Name == jobLabel {
				list = append(list, append([]gpu.Label{label}, ownerLabels(opts, o, row)...))
			}
		}
	}
	if len(list) < 2 {
		return nil
	}
	return list
}

func has(labels []gpu.Label, name string) bool {
	return slices.ContainsFunc(labels, func(l gpu.Label) bool { return l.Name == name })
}
