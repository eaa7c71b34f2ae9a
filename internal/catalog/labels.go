package catalog

import (
	"slices"
	"strings"
)

// ownLabels are labels of series with owner labels, in addition to the labels of Families and the names of fields.
var ownLabels = [...]string{
	"gpu", "UUID", "uuid", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "hostname", "Hostname",
	"container", "namespace", "pod", "pod_uid", "vgpu", "hpc_job", "container_name", "pod_name", "pod_namespace",
	"err_code", "err_msg", "reason", "resource", "sharing", "replicas",
	// Prometheus adds these to every series, or uses them in histograms and summaries.
	"job", "instance", "le", "quantile",
}

// IsOwnLabel reports whether the exporter itself may use the label on a series with owner labels. Labels of pods must
// not replace it.
func IsOwnLabel(name string) bool {
	if strings.HasPrefix(name, "dra_") || strings.HasPrefix(name, "DCGM_") || slices.Contains(ownLabels[:], name) {
		return true
	}
	return slices.ContainsFunc(families[:], func(f Family) bool { return slices.Contains(f.Labels, name) })
}
