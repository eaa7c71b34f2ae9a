package accounting

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A family has a series per T: per owner of an entity, or per entity.
type family[T any] struct {
	gpu.Family
	value func(T) gpu.Value
}

func podFamilies() []family[*ownerUsage] {
	return []family[*ownerUsage]{
		{gpu.Family{Name: "dcgm_pod_gpu_utilization_ratio", Type: gpu.MetricGauge,
			Help: "Part of the time in which the pod's work ran on the GPU or GPU instance, 0 to 1."},
			func(a *ownerUsage) gpu.Value { return a.util }},
		{gpu.Family{Name: "dcgm_pod_gpu_memory_used_bytes", Type: gpu.MetricGauge,
			Help: "Memory of the GPU or GPU instance that the pod uses."},
			func(a *ownerUsage) gpu.Value { return a.memory }},
		{gpu.Family{Name: "dcgm_pod_gpu_active_seconds_total", Type: gpu.MetricCounter,
			Help: "GPU seconds in which the pod's work ran; a GPU instance counts by its part of the GPU."},
			func(a *ownerUsage) gpu.Value { return a.active.value() }},
		{gpu.Family{Name: "dcgm_pod_gpu_allocated_seconds_total", Type: gpu.MetricCounter,
			Help: "GPU seconds that were assigned to the pod; a replica or GPU instance counts by its part of the GPU."},
			func(a *ownerUsage) gpu.Value { return a.allocated.value() }},
		{gpu.Family{Name: "dcgm_pod_gpu_energy_joules_total", Type: gpu.MetricCounter,
			Help: "Energy of the GPU that is charged to the pod: the active part by the pod's activity, the idle part by the share that it holds."},
			func(a *ownerUsage) gpu.Value { return a.energy.value() }},
	}
}

func restFamilies() []family[*sharedDevice] {
	return []family[*sharedDevice]{
		{gpu.Family{Name: "dcgm_gpu_unattributed_utilization_ratio", Type: gpu.MetricGauge,
			Help: "Utilization of the GPU or GPU instance that belongs to no pod, 0 to 1."},
			func(e *sharedDevice) gpu.Value { return e.util }},
		{gpu.Family{Name: "dcgm_gpu_unattributed_memory_used_bytes", Type: gpu.MetricGauge,
			Help: "Used memory of the GPU or GPU instance that belongs to no pod."},
			func(e *sharedDevice) gpu.Value { return e.memory }},
		{gpu.Family{Name: "dcgm_gpu_unattributed_active_seconds_total", Type: gpu.MetricCounter,
			Help: "GPU seconds in which work ran that belongs to no pod."},
			func(e *sharedDevice) gpu.Value { return e.totals.active.value() }},
		{gpu.Family{Name: "dcgm_gpu_unattributed_energy_joules_total", Type: gpu.MetricCounter,
			Help: "Energy of the GPU or GPU instance that belongs to no pod: of work in no pod, and of idle time that is assigned to none."},
			func(e *sharedDevice) gpu.Value { return e.totals.energy.value() }},
	}
}

func infoFamily() gpu.Family {
	return gpu.Family{Name: "dcgm_pod_gpu_info", Type: gpu.MetricGauge,
		Help: "Which container a GPU, GPU instance or replica is assigned to, and how it is shared."}
}

func missingFamily() gpu.Family {
	return gpu.Family{Name: "dcgm_exporter_attribution_unavailable", Type: gpu.MetricGauge,
		Help: "What attribution does not know of the latest cycle, and why."}
}

// IsFamily reports whether a family of that name is the package's.
func IsFamily(name string) bool {
	return name == infoFamily().Name || name == missingFamily().Name ||
		slices.ContainsFunc(podFamilies(), func(f family[*ownerUsage]) bool { return f.Name == name }) ||
		slices.ContainsFunc(restFamilies(), func(f family[*sharedDevice]) bool { return f.Name == name })
}

// appendFamilies appends the families with what is known now. A snapshot keeps its series: all are
// new, but for the labels.
func (s *session) appendFamilies(list []gpu.Family) []gpu.Family {
	owners := 0
	for i := range s.entities {
		owners += len(s.entities[i].accounts)
	}
	for _, f := range podFamilies() {
		f.Series = make([]gpu.Series, 0, owners)
		for i := range s.entities {
			for _, a := range s.entities[i].accounts {
				f.Series = append(f.Series, gpu.Series{Row: gpu.AllRows, Labels: a.labels, Value: f.value(a)})
			}
		}
		list = append(list, f.Family)
	}
	info := infoFamily()
	info.Series = s.infos
	list = append(list, info)
	for _, f := range restFamilies() {
		f.Series = make([]gpu.Series, len(s.entities))
		for i := range s.entities {
			e := &s.entities[i]
			f.Series[i] = gpu.Series{Row: gpu.AllRows, Labels: e.labels, Value: f.value(e)}
		}
		list = append(list, f.Family)
	}
	missing := missingFamily()
	for _, u := range slices.SortedFunc(maps.Keys(s.missing), unavailable.compare) {
		missing.Series = append(missing.Series, gpu.Series{
			Row: gpu.AllRows, Labels: []gpu.Label{{Name: "what", Value: u.what}, {Name: "reason", Value: u.reason}}, Value: gpu.Int(1),
		})
	}
	return append(list, missing)
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

// appendInfos appends an info series per container that owns the entity.
func appendInfos(series []gpu.Series, e *sharedDevice, use *gpu.Use) []gpu.Series {
	sharing := use.Sharing.String()
	if e.instance && use.Sharing == gpu.SharingNone {
		sharing = "mig"
	}
	type container struct{ namespace, pod, container, resource string }
	seen := map[container]bool{}
	for i := range use.Owners {
		o := &use.Owners[i]
		key := container{o.Namespace, o.Pod, o.Container, o.Resource}
		if o.Pod == "" || seen[key] {
			continue
		}
		seen[key] = true
		labels := append(ownerLabels(e, o, o.Container), gpu.Label{Name: "pod_uid", Value: o.PodUID},
			gpu.Label{Name: "resource", Value: o.Resource}, gpu.Label{Name: "sharing", Value: sharing})
		if use.Replicas > 0 {
			labels = append(labels, gpu.Label{Name: "replicas", Value: strconv.Itoa(use.Replicas)})
		}
		series = append(series, gpu.Series{Row: gpu.AllRows, Labels: labels, Value: gpu.Int(1)})
	}
	return series
}
