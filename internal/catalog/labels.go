package catalog

import (
	"slices"
	"strings"
)

// ownLabels are labels of series with owner labels, in addition to the labels of families and the names of fields.
var ownLabels = [...]string{
	"uuid", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "hostname", "Hostname",
	"vgpu", "container_name", "pod_name", "pod_namespace", "err_code", "err_msg",
	// Prometheus adds these to every series, or uses them in histograms and summaries.
	"job", "instance", "le", "quantile",
}

// IsOwnLabel reports whether the exporter itself may use the label on a series with owner labels. Labels of pods must
// not replace it.
func IsOwnLabel(name string) bool {
	if strings.HasPrefix(name, "dra_") || strings.HasPrefix(name, "DCGM_") || slices.Contains(ownLabels[:], name) {
		return true
	}
	has := func(f Family) bool { return f.hasOwners() && slices.Contains(f.Labels, name) }
	return slices.ContainsFunc(families[:], has)
}

// hasOwners reports whether series of the family can have the labels of an owner.
func (f *Family) hasOwners() bool { return f.Group == Requested || slices.Contains(f.Labels, "pod") }
