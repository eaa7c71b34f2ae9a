//go:build generate

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Matchers that queries share. A series without the label cluster matches ".*", which All stands
// for. Links of a GPU have gpu_uuid where GPUs have UUID.
const (
	ofCluster = `cluster=~"$cluster"`
	ofNode    = ofCluster + `, instance=~"$instance"`
	ofGPU     = ofNode + `, gpu=~"$gpu"`
)

// Labels that queries aggregate by.
const (
	byGPU      = "instance, hostname, gpu"
	byInstance = "instance, hostname, gpu, GPU_I_PROFILE, GPU_I_ID"
	byDevice   = "instance, gpu, GPU_I_ID"
	byOwner    = byDevice + ", namespace, pod, hpc_job"
)

// field returns a query of a DCGM field, in the base unit of what it measures, under either
// vocabulary: the classic name where it is served, the current one where that is, and one of them
// where both are. It aggregates by labels, so that labels which differ between the vocabularies
// (the driver's version) or come and go (the owner) do not make a series twice.
func field(classic, matchers, by string) string {
	return fieldOver(classic, matchers, by, "", "")
}

// fieldOver is field with a function over a range, such as "rate" over "[5m]".
func fieldOver(classic, matchers, by, function, window string) string {
	return fmt.Sprintf("max by (%s) (%s)", by, either(classic, func(name string) string {
		if function == "" {
			return name + "{" + matchers + "}"
		}
		return function + "(" + name + "{" + matchers + "}" + window + ")"
	}))
}

// either returns what query makes of both names of a field, each scaled to the base unit.
func either(classic string, query func(name string) string) string {
	c, ok := catalog.Lookup(classic)
	if !ok || c.Entry.Classic != classic {
		panic(classic + " is no classic name of a field")
	}
	one := query(classic) + scaled(c.Unit)
	if c.Entry.Current == classic {
		return one
	}
	current, _ := catalog.Lookup(c.Entry.Current)
	return one + " or " + query(c.Entry.Current) + scaled(current.Unit)
}

// scaled is the factor to the base unit.
func scaled(u gpu.Unit) string {
	f := map[gpu.Unit]float64{
		catalog.Megahertz: 1e6, catalog.Kilohertz: 1e3, catalog.Millijoules: 1e-3, catalog.Percent: 1e-2,
		catalog.Mebibytes: 1 << 20, catalog.MegabytesPerSecond: 1024 * 1000, catalog.Milliseconds: 1e-3,
	}[u]
	switch {
	case f == 0:
		return ""
	case f < 1:
		return " / " + strconv.FormatFloat(1/f, 'f', -1, 64)
	default:
		return " * " + strconv.FormatFloat(f, 'f', -1, 64)
	}
}

// named adds the label node: the host name where the series have one, else the instance. Under
// Kubernetes an instance is an address, which says little.
func named(query string) string {
	return `label_replace(label_replace(` + query + `, "node", "$1", "instance", "(.*)"), "node", "$1", "hostname", "(.+)")`
}

// hosted is named for series without a host name, such as those of accounting: the host name is
// that of the device series of the same instance, if there are any.
func hosted(query string) string {
	hosts := "group by (instance, hostname) (" + either("DCGM_FI_DEV_GPU_TEMP", func(name string) string { return name + "{" + ofNode + "}" }) + ")"
	return named(query + " * on (instance) group_left (hostname) (" + hosts + " or on (instance) group by (instance) (dcgm_exporter_build_info{" + ofNode + "}))")
}

// owned returns a query of a metric whose labels namespace, pod and container are those of the
// workload, whether or not the scrape honors labels: where it does not they are exported_… and the
// plain ones are those of the exporter's own pod, which owns nothing. The three parts are disjoint.
// function and window are as of fieldOver; matchers must not be empty.
func owned(metric, matchers, function, window string) string {
	read := func(more string) string {
		s := metric + "{" + matchers + more + "}" + window
		if function != "" {
			s = function + "(" + s + ")"
		}
		return s
	}
	own := "on (instance, namespace, pod) dcgm_exporter_build_info{" + ofNode + "}"
	return "(" + relabel(read(`, exported_pod!="", exported_namespace=~"$namespace", exported_pod=~"$pod"`),
		`"namespace", "$1", "exported_namespace", "(.*)"`, `"pod", "$1", "exported_pod", "(.*)"`, `"container", "$1", "exported_container", "(.*)"`) +
		" or (" + read(`, exported_pod="", namespace=~"$namespace", pod=~"$pod"`) + " unless " + own + ")" +
		" or " + relabel(read(`, exported_pod="", namespace=~"$namespace", pod=~"$pod"`)+" and "+own,
		`"namespace", "", "", ""`, `"pod", "", "", ""`, `"container", "", "", ""`) + ")"
}

// everyOwner is owned on a dashboard without the variables namespace and pod.
func everyOwner(metric, matchers, function, window string) string {
	return strings.NewReplacer(`, exported_namespace=~"$namespace", exported_pod=~"$pod"`, "", `, namespace=~"$namespace", pod=~"$pod"`, "").
		Replace(owned(metric, matchers, function, window))
}

// relabel applies label_replace once per rule.
func relabel(query string, rules ...string) string {
	for _, rule := range rules {
		query = "label_replace(" + query + ", " + rule + ")"
	}
	return query
}

// jobbed adds the label workload: the batch job, or the name of the pod without what its controller
// appends (an ordinal, a random suffix), so that the pods of one job are one workload.
func jobbed(query string) string {
	return relabel(query,
		`"workload", "$1", "pod", "(.+?)(?:-[0-9]+)?(?:-[bcdfghjklmnpqrstvwxz2456789]{5})?"`,
		`"workload", "$1", "hpc_job", "(.+)"`)
}

// gpus are the GPUs: not their instances, not their links.
const gpus = `dcgm_exporter_entity_up{` + ofNode + `, UUID!="", GPU_I_ID=""}`

// gpusOf are those of the variable gpu.
const gpusOf = `dcgm_exporter_entity_up{` + ofGPU + `, UUID!="", GPU_I_ID=""}`

// Accounting over five minutes, in GPUs: a GPU second per second is a GPU.
const (
	allocated = `rate(dcgm_pod_gpu_allocated_seconds_total{` + ofNode + `}[5m])`
	active    = `rate(dcgm_pod_gpu_active_seconds_total{` + ofNode + `}[5m])`
)

// withXID are the GPUs with an XID within the last hour: by the time at which it was seen; where the
// counters file has only the last XID, by a code that was not there an hour ago. The last XID
// itself stays until the driver is loaded again, long after the GPU was mended.
func withXID(matchers string) string {
	last := either("DCGM_FI_DEV_XID_ERRORS", func(name string) string { return name + "{" + matchers + "}" })
	before := either("DCGM_FI_DEV_XID_ERRORS", func(name string) string { return name + "{" + matchers + "} offset 1h" })
	return "max by (instance, gpu) (time() - DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS{" + matchers + "} < 3600)" +
		" or max by (instance, gpu) (((" + last + ") > 0) unless on (instance, gpu, err_code) ((" + before + ") > 0))"
}

// orZero gives a count that finds nothing the value 0.
func orZero(query string) string { return query + " or vector(0)" }

// holders are the owners of devices by labels and more (sharing, replicas): pods as
// dcgm_pod_gpu_info has them, and batch jobs outside pods by their accounts; a job within a pod is
// that pod. owner is owned or everyOwner.
func holders(owner owner, matchers, labels, more string) string {
	return "(group by (" + labels + more + ") (" + owner("dcgm_pod_gpu_info", matchers+`, hpc_job=""`, "", "") + ")" +
		" or on (" + labels + ") group by (" + labels + ") (" + owner("dcgm_pod_gpu_allocated_seconds_total", matchers, "", "") + "))"
}

// taken are the devices that have an owner.
func taken(matchers string) string {
	return "(group by (" + byDevice + ") (dcgm_pod_gpu_info{" + matchers + "}) or group by (" + byDevice + ") (dcgm_pod_gpu_allocated_seconds_total{" + matchers + "}))"
}

// An owner is owned or everyOwner.
type owner func(metric, matchers, function, window string) string

// firing are the alerts of deployment/rules that fire for the chosen nodes. Alerts on GPUs have no label instance, so they
// are chosen by the host name.
func firing(offset string) string {
	const alerts = `ALERTS{alertstate="firing", alertname=~"(GPU|DCGMExporter|NVSwitch|NetworkCard|Rack).+", `
	hosts := "group by (hostname) (" + either("DCGM_FI_DEV_GPU_TEMP", func(name string) string { return name + "{" + ofNode + `, hostname!=""}` + offset }) + ")"
	return alerts + ofNode + "}" + offset + " or " + alerts + ofCluster + "}" + offset + " and on (hostname) " + hosts
}

// unscraped are the exporters that answered within the last six hours and do not answer now. up has other targets, too:
// those with the address of an exporter are exporters.
const unscraped = `((up{` + ofNode + `} and on (job, instance) group by (job, instance) (last_over_time(dcgm_exporter_build_info{` + ofNode + `}[6h]))) == 0)`

// withoutData are the nodes whose exporter does not answer, or has no data of its GPUs, with the reason.
func withoutData() string {
	failing := `dcgm_exporter_collect_success{` + ofNode + `} == 0`
	reason := `max by (instance, reason) (dcgm_exporter_collect_unavailable{` + ofNode + `} == 1)`
	return "(" + relabel("max by (instance) ("+unscraped+")", `"reason", "does not answer", "", ""`) +
		" or on (instance) " + reason + " or on (instance) " + relabel("max by (instance) ("+failing+")", `"reason", "error", "", ""`) + ")"
}

// lately is named for nodes whose exporter may be gone: the host name is the last one of the last six hours.
func lately(query string) string {
	hosts := "group by (instance, hostname) (" + either("DCGM_FI_DEV_GPU_TEMP", func(name string) string {
		return "last_over_time(" + name + "{" + ofNode + "}[6h])"
	}) + ")"
	return named(query + " * on (instance) group_left (hostname) (topk by (instance) (1, " + hosts + ") or on (instance) " +
		"group by (instance) (last_over_time(dcgm_exporter_build_info{" + ofNode + "}[6h])))")
}
