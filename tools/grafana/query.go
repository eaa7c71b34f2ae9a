//go:build generate

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// These matchers are shared by queries. The choice All is ".*", which also matches series without the label.
const (
	ofCluster = `cluster=~"$cluster"`
	ofNode    = ofCluster + `, instance=~"$instance"`
	ofGPU     = ofNode + `, gpu=~"$gpu"`
)

// These are the labels by which queries aggregate.
const (
	byGPU      = "instance, hostname, gpu"
	byInstance = "instance, hostname, gpu, GPU_I_PROFILE, GPU_I_ID"
	byDevice   = "instance, gpu, GPU_I_ID"
	byOwner    = byDevice + ", namespace, pod, hpc_job"
)

// field returns a query of a DCGM field in its base unit, in either vocabulary. If a node serves both names, the result
// still has one series for each entity. The aggregation removes labels that differ between the vocabularies, such as
// the driver version, and labels that change, such as the owner.
func field(classic, matchers, by string) string {
	return fieldOver(classic, matchers, by, "", "")
}

// fieldOver is like field, with a function over a range, such as "rate" and "[5m]".
func fieldOver(classic, matchers, by, function, window string) string {
	return fmt.Sprintf("max by (%s) (%s)", by, either(classic, func(name string) string {
		if function == "" {
			return name + "{" + matchers + "}"
		}
		return function + "(" + name + "{" + matchers + "}" + window + ")"
	}))
}

// either calls query with the classic and the current name of a field. It scales each result to the base unit, and
// joins the results with "or".
func either(classic string, query func(name string) string) string {
	c, ok := catalog.Lookup(classic)
	if !ok || c.Entry.Classic != classic {
		panic(classic + " is not the classic name of a field")
	}
	one := query(classic) + scaled(c.Unit)
	if c.Entry.Current == classic {
		return one
	}
	current, _ := catalog.Lookup(c.Entry.Current)
	return one + " or " + query(c.Entry.Current) + scaled(current.Unit)
}

// scaled returns the operation that converts a unit to its base unit, or "".
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

// named adds the label node. It is the host name if the series has one, otherwise the instance, which in Kubernetes is
// only an address.
func named(query string) string {
	return relabel(query, `"node", "$1", "instance", "(.*)"`, `"node", "$1", "hostname", "(.+)"`)
}

// hosted is like named, for series without a host name, such as those of accounting. It takes the host name from the
// GPU temperatures of the same instance.
func hosted(query string) string {
	hosts := either("DCGM_FI_DEV_GPU_TEMP", func(name string) string { return name + "{" + ofNode + "}" })
	return named(query + " * on (instance) group_left (hostname) (group by (instance, hostname) (" + hosts + ")" +
		" or on (instance) group by (instance) (dcgm_exporter_build_info{" + ofNode + "}))")
}

// owned returns a query of a metric in which the labels namespace, pod and container name the workload. If a scrape
// does not honor labels, Prometheus renames the workload's labels to exported_…, and the plain labels name the
// exporter's own pod.
//
// The query joins three disjoint parts: series with renamed labels, series with labels of workloads, and series with
// the labels of the exporter's pod, which are removed. function and window are those of fieldOver. matchers must not be
// empty.
func owned(metric, matchers, function, window string) string {
	read := func(more string) string {
		s := metric + "{" + matchers + more + "}" + window
		if function != "" {
			s = function + "(" + s + ")"
		}
		return s
	}
	own := "on (instance, namespace, pod) dcgm_exporter_build_info{" + ofNode + "}"
	renamed := read(`, exported_pod!="", exported_namespace=~"$namespace", exported_pod=~"$pod"`)
	plain := read(`, exported_pod="", namespace=~"$namespace", pod=~"$pod"`)
	return "(" + relabel(renamed, `"namespace", "$1", "exported_namespace", "(.*)"`,
		`"pod", "$1", "exported_pod", "(.*)"`, `"container", "$1", "exported_container", "(.*)"`) +
		" or (" + plain + " unless " + own + ")" +
		" or " + relabel(plain+" and "+own,
		`"namespace", "", "", ""`, `"pod", "", "", ""`, `"container", "", "", ""`) + ")"
}

// everyOwner is like owned, for a dashboard without the variables namespace and pod.
func everyOwner(metric, matchers, function, window string) string {
	return strings.NewReplacer(
		`, exported_namespace=~"$namespace", exported_pod=~"$pod"`, "",
		`, namespace=~"$namespace", pod=~"$pod"`, "",
	).Replace(owned(metric, matchers, function, window))
}

// relabel wraps a query in a label_replace for each rule.
func relabel(query string, rules ...string) string {
	for _, rule := range rules {
		query = "label_replace(" + query + ", " + rule + ")"
	}
	return query
}

// gpus selects GPUs without their MIG instances and links. The value is 1 if the GPU answers.
const gpus = `dcgm_exporter_entity_up{` + ofNode + `, UUID!="", GPU_I_ID=""}`

// gpusOf selects the GPUs of the variable gpu.
const gpusOf = `dcgm_exporter_entity_up{` + ofGPU + `, UUID!="", GPU_I_ID=""}`

// These queries return the mean number of GPUs that each owner held and used over five minutes. One GPU second per
// second is one GPU.
const (
	allocated = `rate(dcgm_pod_gpu_allocated_seconds_total{` + ofNode + `}[5m])`
	active    = `rate(dcgm_pod_gpu_active_seconds_total{` + ofNode + `}[5m])`
)

// withXID returns a query of the GPUs that had an XID within the last hour. It uses the time of each XID. If the
// counters file has only the last XID, the query selects GPUs whose last XID was different an hour ago. The mere
// presence of a last XID does not suffice, because it stays until the driver is reloaded.
func withXID(matchers string) string {
	const xids = "DCGM_FI_DEV_XID_ERRORS"
	last := either(xids, func(name string) string { return name + "{" + matchers + "}" })
	before := either(xids, func(name string) string { return name + "{" + matchers + "} offset 1h" })
	return "max by (instance, gpu) (time() - DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS{" + matchers + "} < 3600)" +
		" or max by (instance, gpu) (((" + last + ") > 0) unless on (instance, gpu, err_code) ((" + before + ") > 0))"
}

// orZero makes a query return 0 if it has no result.
func orZero(query string) string { return query + " or vector(0)" }

// owners returns a query of the owners of devices. Pods come from dcgm_pod_gpu_info, and batch jobs outside of pods
// from their accounts. A batch job in a pod counts as the pod. labels are the labels of the result. more has additional
// ones for pods, such as ", sharing".
func owners(owner owner, matchers, labels, more string) string {
	pods := owner("dcgm_pod_gpu_info", matchers+`, hpc_job=""`, "", "")
	accounts := owner("dcgm_pod_gpu_allocated_seconds_total", matchers, "", "")
	return "(group by (" + labels + more + ") (" + pods + ")" +
		" or on (" + labels + ") group by (" + labels + ") (" + accounts + "))"
}

// taken returns a query of the devices that have an owner.
func taken(matchers string) string {
	return "(group by (" + byDevice + ") (dcgm_pod_gpu_info{" + matchers + "})" +
		" or group by (" + byDevice + ") (dcgm_pod_gpu_allocated_seconds_total{" + matchers + "}))"
}

// An owner is the function owned or everyOwner.
type owner func(metric, matchers, function, window string) string

// stragglers returns a query of the GPUs and MIG instances that meet the condition of the alert GPUStraggler. The
// values are their utilization as a fraction of the median of their job. A job is a batch job or a container of a pod,
// with at least four devices and a median above 30 %.
func stragglers(owner owner) string {
	const job = "cluster, namespace, pod, container, hpc_job"
	busy := "max by (cluster, " + byDevice + ", namespace, pod, container, hpc_job) (" +
		owner("dcgm_pod_gpu_utilization_ratio", ofNode, "avg_over_time", "[15m]") + ")"
	median := "quantile by (" + job + ") (0.5, " + busy + ")"
	return "min by (" + byOwner + ") ((" + busy + " / on (" + job + ") group_left () (" + median + " > 0.3)) < 0.6" +
		" and on (" + job + ") count by (" + job + ") (" + busy + ") >= 4)"
}

// firing returns a query of the alerts in deployment/rules that fire for the selected nodes. Alerts without an instance
// label, such as those about GPUs, are selected by host name.
func firing(offset string) string {
	const alerts = `ALERTS{alertstate="firing", alertname=~"(GPU|DCGMExporter|NVSwitch|NetworkCard|Rack).+", `
	hosts := either("DCGM_FI_DEV_GPU_TEMP", func(name string) string {
		return name + "{" + ofNode + `, hostname!=""}` + offset
	})
	return alerts + ofNode + "}" + offset + " or " + alerts + ofCluster + "}" + offset +
		" and on (hostname) group by (hostname) (" + hosts + ")"
}

// unscraped selects targets that do not answer now, but served the exporter's metrics within the last six hours.
const unscraped = `((up{` + ofNode + `} and on (job, instance) ` +
	`group by (job, instance) (last_over_time(dcgm_exporter_build_info{` + ofNode + `}[6h]))) == 0)`

// withoutData returns a query of the nodes whose exporter does not answer or has no GPU data, with the reason.
func withoutData() string {
	failing := `dcgm_exporter_collect_success{` + ofNode + `} == 0`
	reason := `max by (instance, reason) (dcgm_exporter_collect_unavailable{` + ofNode + `} == 1)`
	return "(" + relabel("max by (instance) ("+unscraped+")", `"reason", "does not answer", "", ""`) +
		" or on (instance) " + reason +
		" or on (instance) " + relabel("max by (instance) ("+failing+")", `"reason", "error", "", ""`) + ")"
}

// lately is like named, for nodes whose exporter may be gone. It uses host names of the last six hours.
func lately(query string) string {
	hosts := either("DCGM_FI_DEV_GPU_TEMP", func(name string) string {
		return "last_over_time(" + name + "{" + ofNode + "}[6h])"
	})
	return named(query + " * on (instance) group_left (hostname) " +
		"(topk by (instance) (1, group by (instance, hostname) (" + hosts + ")) or on (instance) " +
		"group by (instance) (last_over_time(dcgm_exporter_build_info{" + ofNode + "}[6h])))")
}
