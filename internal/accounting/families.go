package accounting

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// family has a series per owner of an entity, or one per entity if it reports a remainder.
type family struct {
	gpu.Family
	rest    bool
	measure measure
}

// The families that report no measure.
const (
	familyInfo    = "dcgm_pod_gpu_info"
	familyMissing = "dcgm_exporter_attribution_unavailable"
)

// families lists the families of the package, in the order of a page.
var families = []family{
	newFamily("dcgm_pod_gpu_utilization_ratio", gpu.MetricGauge, false, utilization,
		"Fraction of time in which the pod's work ran on the GPU or GPU instance, 0 to 1."),
	newFamily("dcgm_pod_gpu_memory_used_bytes", gpu.MetricGauge, false, memory,
		"Memory of the GPU or GPU instance used by the pod."),
	newFamily("dcgm_pod_gpu_active_seconds_total", gpu.MetricCounter, false, active,
		"GPU seconds in which the pod's work ran. A GPU instance counts by its fraction of the GPU."),
	newFamily("dcgm_pod_gpu_allocated_seconds_total", gpu.MetricCounter, false, allocated,
		"GPU seconds assigned to the pod. A replica or GPU instance counts by its fraction of the GPU."),
	newFamily("dcgm_pod_gpu_energy_joules_total", gpu.MetricCounter, false, energy,
		"GPU energy charged to the pod: the active part by its activity, the idle part by its share."),
	newFamily(familyInfo, gpu.MetricGauge, false, 0,
		"Container or job that a GPU, GPU instance or replica is assigned to, and how it is shared."),
	newFamily("dcgm_gpu_unattributed_utilization_ratio", gpu.MetricGauge, true, utilization,
		"Unattributed utilization of the GPU or GPU instance, 0 to 1."),
	newFamily("dcgm_gpu_unattributed_memory_used_bytes", gpu.MetricGauge, true, memory,
		"Unattributed used memory of the GPU or GPU instance."),
	newFamily("dcgm_gpu_unattributed_active_seconds_total", gpu.MetricCounter, true, active,
		"Unattributed GPU seconds in which work ran."),
	newFamily("dcgm_gpu_unattributed_energy_joules_total", gpu.MetricCounter, true, energy,
		"Unattributed energy of the GPU or GPU instance: work and idle time that no pod is charged for."),
	newFamily(familyMissing, gpu.MetricGauge, true, 0,
		"What attribution could not determine in the latest cycle, and why."),
}

func newFamily(name string, kind gpu.MetricType, rest bool, m measure, help string) family {
	return family{gpu.Family{Name: name, Type: kind, Help: help}, rest, m}
}

// Families returns the families without their series, in the order of a page.
func Families() []gpu.Family {
	var list []gpu.Family
	for _, f := range families {
		list = append(list, f.Family)
	}
	return list
}

// IsFamily reports whether the package has a family of that name.
func IsFamily(name string) bool {
	return slices.ContainsFunc(families, func(f family) bool { return f.Name == name })
}

// appendFamilies appends the families of this cycle. Their series are valid until the next call.
func (s *session) appendFamilies(list []gpu.Family) []gpu.Family {
	series := s.series[:0]
	for _, f := range families {
		start := len(series)
		switch {
		case f.Name == familyInfo:
			f.Series = s.infos
		case f.Name == familyMissing:
			f.Series = s.missingSeries()
		case f.rest:
			for i := range s.entities {
				e := &s.entities[i]
				series = append(series, gpu.Series{Row: gpu.AllRows, Labels: e.labels, Value: e.totals.now[f.measure]})
			}
		default:
			for i := range s.entities {
				for _, a := range s.entities[i].accounts {
					series = append(series, gpu.Series{Row: gpu.AllRows, Labels: a.labels, Value: a.now[f.measure]})
				}
			}
		}
		if f.Series == nil {
			f.Series = series[start:len(series):len(series)]
		}
		list = append(list, f.Family)
	}
	s.series = series
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

// unavailable says what attribution does not know in this cycle, and why.
type unavailable struct{ what, reason string }

func (u unavailable) compare(o unavailable) int {
	return cmp.Or(cmp.Compare(u.what, o.what), cmp.Compare(u.reason, o.reason))
}

// ownerLabels returns the labels of an owner's series for an entity. A container label, if any, follows the pod label.
func ownerLabels(e *sharedDevice, o *gpu.Owner, container string) []gpu.Label {
	if o.Pod == "" {
		return slices.Concat(e.labels, o.PodLabels(), o.Labels)
	}
	pod := gpu.Owner{Namespace: o.Namespace, Pod: o.Pod}
	return slices.Concat(e.labels, pod.PodLabels(), (&gpu.Owner{Container: container}).PodLabels())
}

// appendInfos appends an info series for each container and job that owns the entity, with all labels of the owner.
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
		if o.Pod != "" { // ownerLabels already added the labels of other owners
			labels = append(labels, o.Labels...)
		}
		series = append(series, gpu.Series{Row: gpu.AllRows, Labels: labels, Value: gpu.Int(1)})
	}
	return series
}
