package catalog

import (
	"slices"
	"strings"
)

// ownLabels are the labels of series with labels of an owner, beside those of Families and the names of fields.
var ownLabels = [...]string{
	"gpu", "UUID", "uuid", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "hostname", "Hostname",
	"container", "namespace", "pod", "pod_uid", "vgpu", "hpc_job", "container_name", "pod_name", "pod_namespace",
	"err_code", "err_msg", "reason", "resource", "sharing", "replicas",
	// Prometheus adds these to every series, or has them in histograms and summaries.
	"job", "instance", "le", "quantile",
}

// IsOwnLabel reports whether a series with labels of an owner can have one of this name from the exporter itself, so that
// no label of a pod may take it.
func IsOwnLabel(name string) bool {
	if strings.HasPrefix(name, "dra_") || strings.HasPrefix(name, "DCGM_") || slices.Contains(ownLabels[:], name) {
		return true
	}
	return slices.ContainsFunc(families[:], func(f Family) bool { return slices.Contains(f.Labels, name) })
}
