package accounting

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A family has a series per owner of an entity, or per entity for the rest.
type family struct {
	gpu.Family
	rest    bool
	measure measure
}

// The families that are of no measure.
const (
	familyInfo    = "dcgm_pod_gpu_info"
	familyMissing = "dcgm_exporter_attribution_unavailable"
)

// families has a row for each family of the package, in the order of a page.
var families = []family{
	newFamily("dcgm_pod_gpu_utilization_ratio", gpu.MetricGauge, false, utilization,
		"Part of the time in which the pod's work ran on the GPU or GPU instance, 0 to 1."),
	newFamily("dcgm_pod_gpu_memory_used_bytes", gpu.MetricGauge, false, memory,
		"Memory of the GPU or GPU instance that the pod uses."),
	newFamily("dcgm_pod_gpu_active_seconds_total", gpu.MetricCounter, false, active,
		"GPU seconds in which the pod's work ran; a GPU instance counts by its part of the GPU."),
	newFamily("dcgm_pod_gpu_allocated_seconds_total", gpu.MetricCounter, false, allocated,
		"GPU seconds that were assigned to the pod; a replica or GPU instance counts by its part of the GPU."),
	newFamily("dcgm_pod_gpu_energy_joules_total", gpu.MetricCounter, false, energy,
		"Energy of the GPU that is charged to the pod: the active part by the pod's activity, the idle part by the share that it holds."),
	newFamily(familyInfo, gpu.MetricGauge, false, 0,
		"Which container or job a GPU, GPU instance or replica is assigned to, and how it is shared."),
	newFamily("dcgm_gpu_unattributed_utilization_ratio", gpu.MetricGauge, true, utilization,
		"Utilization of the GPU or GPU instance that belongs to no pod, 0 to 1."),
	newFamily("dcgm_gpu_unattributed_memory_used_bytes", gpu.MetricGauge, true, memory,
		"Used memory of the GPU or GPU instance that belongs to no pod."),
	newFamily("dcgm_gpu_unattributed_active_seconds_total", gpu.MetricCounter, true, active,
		"GPU seconds in which work ran that belongs to no pod."),
	newFamily("dcgm_gpu_unattributed_energy_joules_total", gpu.MetricCounter, true, energy,
		"Energy of the GPU or GPU instance that belongs to no pod: of work in no pod, and of idle time that is assigned to none."),
	newFamily(familyMissing, gpu.MetricGauge, true, 0,
		"What attribution does not know of the latest cycle, and why."),
}

func newFamily(name string, kind gpu.MetricType, rest bool, m measure, help string) family {
	return family{gpu.Family{Name: name, Type: kind, Help: help}, rest, m}
}

// Families returns the families without their series, in the order in which a page has them.
func Families() []gpu.Family {
	var list []gpu.Family
	for _, f := range families {
		list = append(list, f.Family)
	}
	return list
}

// IsFamily reports whether a family of that name is the package's.
func IsFamily(name string) bool {
	return slices.ContainsFunc(families, func(f family) bool { return f.Name == name })
}

// appendFamilies appends the families of this cycle. A snapshot keeps its series: a cycle
// makes all of them anew, but for the labels.
func (s *session) appendFamilies(list []gpu.Family) []gpu.Family {
	owners := 0
	for i := range s.entities {
		owners += len(s.entities[i].accounts)
	}
	for _, f := range families {
		switch {
		case f.Name == familyInfo:
			f.Series = s.infos
		case f.Name == familyMissing:
			f.Series = s.missingSeries()
		case f.rest:
			f.Series = make([]gpu.Series, len(s.entities))
			for i := range s.entities {
				e := &s.entities[i]
				f.Series[i] = gpu.Series{Row: gpu.AllRows, Labels: e.labels, Value: e.totals.now[f.measure]}
			}
		default:
			f.Series = make([]gpu.Series, 0, owners)
			for i := range s.entities {
				for _, a := range s.entities[i].accounts {
					f.Series = append(f.Series, gpu.Series{Row: gpu.AllRows, Labels: a.labels, Value: a.now[f.measure]})
				}
			}
		}
		list = append(list, f.Family)
	}
	return list
}

// missingSeries returns a series for each thing that attribution does not know in this cycle.
func (s *session) missingSeries() (series []gpu.Series) {
	for _, u := range slices.SortedFunc(maps.Keys(s.missing), unavailable.compare) {
		labels := []gpu.Label{{Name: "what", Value: u.what}, {Name: "reason", Value: u.reason}}
		series = append(series, gpu.Series{Row: gpu.AllRows, Labels: labels, Value: gpu.Int(1)})
	}
	return series
}

// An unavailable is something that attribution does not know in this cycle, and why.
type unavailable struct{ what, reason string }

func (u unavailable) compare(o unavailable) int {
	return cmp.Or(cmp.Compare(u.what, o.what), cmp.Compare(u.reason, o.reason))
}

// ownerLabels returns the labels of an owner's series on an entity; a container that is named stands
// behind its pod.
func ownerLabels(e *sharedDevice, o *gpu.Owner, container string) []gpu.Label {
	if o.Pod == "" {
		return slices.Concat(e.labels, o.PodLabels(), o.Labels)
	}
	pod := gpu.Owner{Namespace: o.Namespace, Pod: o.Pod}
	return slices.Concat(e.labels, pod.PodLabels(), (&gpu.Owner{Container: container}).PodLabels())
}

// appendInfos appends an info series per container and per job that owns the entity, with all labels that the owner has.
func appendInfos(series []gpu.Series, e *sharedDevice, use *gpu.Use) []gpu.Series {
	sharing := use.Sharing.String()
	if e.instance && use.Sharing == gpu.SharingNone {
		sharing = "mig"
	}
	type container struct {
		accountKey
		container, resource string
	}
	seen := map[container]bool{}
	for i := range use.Owners {
		o := &use.Owners[i]
		key := container{keyOf(e, o), o.Container, o.Resource}
		if seen[key] {
			continue
		}
		seen[key] = true
		labels := append(ownerLabels(e, o, o.Container), gpu.Label{Name: "pod_uid", Value: o.PodUID},
			gpu.Label{Name: "resource", Value: o.Resource}, gpu.Label{Name: "sharing", Value: sharing})
		if use.Replicas > 0 {
			labels = append(labels, gpu.Label{Name: "replicas", Value: strconv.Itoa(use.Replicas)})
		}
		if o.Pod != "" { // ownerLabels has those of others
			labels = append(labels, o.Labels...)
		}
		series = append(series, gpu.Series{Row: gpu.AllRows, Labels: labels, Value: gpu.Int(1)})
	}
	return series
}
