package accounting

import (
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The families of attribution, in the order in which a page has them.
const (
	familyUtilization = iota
	familyMemory
	familyActive
	familyAllocated
	familyEnergy
	familyInfo
	familyRestUtilization
	familyRestMemory
	familyRestActive
	familyRestEnergy
	familyUnavailable
)

// The names of the families that say how much of a GPU or GPU instance a pod uses now.
const (
	PodUtilization = "dcgm_pod_gpu_utilization_ratio"
	PodMemory      = "dcgm_pod_gpu_memory_used_bytes"
)

func shareFamilies() []gpu.Family {
	return []gpu.Family{
		familyUtilization: {Name: PodUtilization, Type: gpu.MetricGauge,
			Help: "Part of the time in which the pod's work ran on the GPU or GPU instance, 0 to 1."},
		familyMemory: {Name: PodMemory, Type: gpu.MetricGauge,
			Help: "Memory of the GPU or GPU instance that the pod uses."},
		familyActive: {Name: "dcgm_pod_gpu_active_seconds_total", Type: gpu.MetricCounter,
			Help: "GPU seconds in which the pod's work ran; a GPU instance counts by its part of the GPU."},
		familyAllocated: {Name: "dcgm_pod_gpu_allocated_seconds_total", Type: gpu.MetricCounter,
			Help: "GPU seconds that were assigned to the pod; a replica or GPU instance counts by its part of the GPU."},
		familyEnergy: {Name: "dcgm_pod_gpu_energy_joules_total", Type: gpu.MetricCounter,
			Help: "Energy of the GPU that is charged to the pod: the active part by the pod's activity, the idle part by the share that it holds."},
		familyInfo: {Name: "dcgm_pod_gpu_info", Type: gpu.MetricGauge,
			Help: "Which container a GPU, GPU instance or replica is assigned to, and how it is shared."},
		familyRestUtilization: {Name: "dcgm_gpu_unattributed_utilization_ratio", Type: gpu.MetricGauge,
			Help: "Utilization of the GPU or GPU instance that belongs to no pod, 0 to 1."},
		familyRestMemory: {Name: "dcgm_gpu_unattributed_memory_used_bytes", Type: gpu.MetricGauge,
			Help: "Used memory of the GPU or GPU instance that belongs to no pod."},
		familyRestActive: {Name: "dcgm_gpu_unattributed_active_seconds_total", Type: gpu.MetricCounter,
			Help: "GPU seconds in which work ran that belongs to no pod."},
		familyRestEnergy: {Name: "dcgm_gpu_unattributed_energy_joules_total", Type: gpu.MetricCounter,
			Help: "Energy of the GPU or GPU instance that belongs to no pod: of work in no pod, and of idle time that is assigned to none."},
		familyUnavailable: {Name: "dcgm_exporter_attribution_unavailable", Type: gpu.MetricGauge,
			Help: "What attribution does not know of the latest cycle, and why."},
	}
}

// IsFamily reports whether a family of that name is the package's.
func IsFamily(name string) bool {
	return slices.ContainsFunc(shareFamilies(), func(f gpu.Family) bool { return f.Name == name })
}

// rebuildSeries makes the series of all owners and entities, in the order of rows. They stay until
// the owners change: a cycle only sets their values, absent where nothing is known.
func (s *session) rebuildSeries() {
	for i := range s.families {
		s.families[i].Series = nil
	}
	add := func(labels []gpu.Label, families ...int) {
		for _, i := range families {
			f := &s.families[i]
			f.Series = append(f.Series, gpu.Series{Row: gpu.AllRows, Labels: labels})
		}
	}
	for i := range s.entities {
		e := &s.entities[i]
		for _, a := range e.accounts {
			add(a.labels, familyUtilization, familyMemory, familyActive, familyAllocated, familyEnergy)
		}
		add(e.labels, familyRestUtilization, familyRestMemory, familyRestActive, familyRestEnergy)
	}
	s.families[familyInfo].Series = s.infos
}

// appendFamilies appends the families with what is known now.
func (s *session) appendFamilies(list []gpu.Family) []gpu.Family {
	for i := range s.families { // the snapshot before has its own
		s.families[i].Series = slices.Clone(s.families[i].Series)
	}
	set := func(family, at int, v gpu.Value) { s.families[family].Series[at].Value = v }
	next := 0 // account
	for i := range s.entities {
		e := &s.entities[i]
		for _, a := range e.accounts {
			set(familyUtilization, next, a.util)
			set(familyMemory, next, a.memory)
			set(familyActive, next, sumOf(a.hasActive, a.active))
			set(familyAllocated, next, sumOf(a.hasAllocated, a.allocated))
			set(familyEnergy, next, sumOf(a.hasEnergy, a.energy))
			next++
		}
		l := e.totals
		set(familyRestUtilization, i, e.util)
		set(familyRestMemory, i, e.memory)
		set(familyRestActive, i, sumOf(l.hasActive, l.active))
		set(familyRestEnergy, i, sumOf(l.hasEnergy, l.energy))
	}
	s.sortMissing()
	missing := &s.families[familyUnavailable]
	missing.Series = nil
	for _, u := range s.missing {
		labels := s.missingLabels[u]
		if labels == nil {
			labels = []gpu.Label{{Name: "what", Value: u.what}, {Name: "reason", Value: u.reason}}
			s.missingLabels[u] = labels
		}
		missing.Series = append(missing.Series, gpu.Series{Row: gpu.AllRows, Labels: labels, Value: gpu.Int(1)})
	}
	return append(list, s.families...)
}

// sumOf is the value of a counter that is known, or absent.
func sumOf(known bool, v float64) gpu.Value {
	if !known {
		return gpu.Value{}
	}
	return gpu.Float(v)
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
