package accounting

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The families of attribution, in the order in which they are told.
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

func shareFamilies() []gpu.Family {
	return []gpu.Family{
		familyUtilization: {Name: "dcgm_pod_gpu_utilization_ratio", Type: gpu.MetricGauge,
			Help: "Part of the time in which the pod's work ran on the GPU or GPU instance, 0 to 1."},
		familyMemory: {Name: "dcgm_pod_gpu_memory_used_bytes", Type: gpu.MetricGauge,
			Help: "Memory of the GPU or GPU instance that the pod uses."},
		familyActive: {Name: "dcgm_pod_gpu_active_seconds_total", Type: gpu.MetricCounter,
			Help: "GPU seconds in which the pod's work ran; a GPU instance counts by its part of the GPU."},
		familyAllocated: {Name: "dcgm_pod_gpu_allocated_seconds_total", Type: gpu.MetricCounter,
			Help: "GPU seconds that were assigned to the pod; a replica or GPU instance counts by its part of the GPU."},
		familyEnergy: {Name: "dcgm_pod_gpu_energy_joules_total", Type: gpu.MetricCounter,
			Help: "Energy of the GPU that the pod used: all of it for the only owner of a whole GPU, else by active time."},
		familyInfo: {Name: "dcgm_pod_gpu_info", Type: gpu.MetricGauge,
			Help: "Which container a GPU, GPU instance or replica is assigned to, and how it is shared."},
		familyRestUtilization: {Name: "dcgm_gpu_unattributed_utilization_ratio", Type: gpu.MetricGauge,
			Help: "Utilization of the GPU or GPU instance that belongs to no pod, 0 to 1."},
		familyRestMemory: {Name: "dcgm_gpu_unattributed_memory_used_bytes", Type: gpu.MetricGauge,
			Help: "Used memory of the GPU or GPU instance that belongs to no pod."},
		familyRestActive: {Name: "dcgm_gpu_unattributed_active_seconds_total", Type: gpu.MetricCounter,
			Help: "GPU seconds in which work ran that belongs to no pod."},
		familyRestEnergy: {Name: "dcgm_gpu_unattributed_energy_joules_total", Type: gpu.MetricCounter,
			Help: "Energy of the GPU that belongs to no pod: that of idle time on a shared GPU, and of GPUs without a pod."},
		familyUnavailable: {Name: "dcgm_exporter_attribution_unavailable", Type: gpu.MetricGauge,
			Help: "What attribution could not tell in the latest cycle, and why."},
	}
}

// IsFamily reports whether a family of that name is the package's.
func IsFamily(name string) bool {
	return slices.ContainsFunc(shareFamilies(), func(f gpu.Family) bool { return f.Name == name })
}

// rebuildSeries makes the series of all owners and entities, in the order of rows. They
// stay until the owners change: a cycle only sets their values, absent where
// there is nothing to tell.
func (s *Accountant) rebuildSeries() {
	for i := range s.families {
		s.families[i].Series = nil
	}
	add := func(labels []gpu.Label, families ...int) {
		for _, i := range families {
			f := &s.families[i]
			f.Series = append(f.Series, gpu.Series{Row: gpu.AllRows, Labels: labels, Fixed: true})
		}
	}
	for i := range s.rows {
		r := &s.rows[i]
		for _, a := range r.accounts {
			add(a.labels, familyUtilization, familyMemory, familyActive, familyAllocated, familyEnergy)
		}
		add(r.labels, familyRestUtilization, familyRestMemory, familyRestActive, familyRestEnergy)
	}
	for i := range s.roots {
		add(s.roots[i].labels, familyRestEnergy)
	}
	s.families[familyInfo].Series = s.infos
}

// appendFamilies appends the families with what is known now.
func (s *Accountant) appendFamilies(list []gpu.Family) []gpu.Family {
	set := func(family, at int, v gpu.Value) { s.families[family].Series[at].Value = v }
	next := 0 // account
	for i := range s.rows {
		r := &s.rows[i]
		for _, a := range r.accounts {
			set(familyUtilization, next, a.util)
			set(familyMemory, next, a.memory)
			set(familyActive, next, sumOf(a.hasActive, a.active))
			set(familyAllocated, next, sumOf(a.hasAllocated, a.allocated))
			set(familyEnergy, next, sumOf(a.hasEnergy, a.energy))
			next++
		}
		set(familyRestUtilization, i, r.util)
		set(familyRestMemory, i, r.memory)
		set(familyRestActive, i, sumOf(r.ledger.hasActive, r.ledger.active))
		set(familyRestEnergy, i, sumOf(r.ledger.hasEnergy, r.ledger.energy))
	}
	for i := range s.roots {
		l := s.roots[i].ledger
		set(familyRestEnergy, len(s.rows)+i, sumOf(l.hasEnergy, l.energy))
	}
	slices.SortFunc(s.lacks, func(a, b unavailable) int {
		return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.reason, b.reason))
	})
	missing := &s.families[familyUnavailable]
	missing.Series = missing.Series[:0]
	for _, l := range s.lacks {
		labels := []gpu.Label{{Name: "what", Value: l.what}, {Name: "reason", Value: l.reason}}
		missing.Series = append(missing.Series, gpu.Series{Row: gpu.AllRows, Labels: labels, Value: gpu.Int(1)})
	}
	return append(list, s.families...)
}

// sumOf is the value of a counter that began, or absent.
func sumOf(began bool, v float64) gpu.Value {
	if !began {
		return gpu.Value{}
	}
	return gpu.Float(v)
}

// ownerLabels returns the labels of an owner's series on an entity.
func ownerLabels(r *shareRow, o *gpu.Owner, container string) []gpu.Label {
	labels := slices.Clone(r.labels)
	if o.Pod == "" {
		if o.Container != "" { // of a runtime without Kubernetes
			labels = append(labels, gpu.Label{Name: "container", Value: o.Container})
		}
		return append(labels, o.Labels...)
	}
	labels = append(labels, gpu.Label{Name: "namespace", Value: o.Namespace}, gpu.Label{Name: "pod", Value: o.Pod})
	if container != "" {
		labels = append(labels, gpu.Label{Name: "container", Value: container})
	}
	return labels
}

// appendInfos appends an info series per container that holds the entity.
func appendInfos(series []gpu.Series, r *shareRow, use *gpu.Use) []gpu.Series {
	sharing := use.Sharing.String()
	if r.instance && use.Sharing == gpu.SharingNone {
		sharing = "mig"
	}
	for i := range use.Owners {
		o := &use.Owners[i]
		same := func(x gpu.Owner) bool {
			return x.Namespace == o.Namespace && x.Pod == o.Pod && x.Container == o.Container && x.Resource == o.Resource
		}
		if o.Pod == "" || slices.ContainsFunc(use.Owners[:i], same) {
			continue
		}
		labels := append(ownerLabels(r, o, o.Container), gpu.Label{Name: "pod_uid", Value: o.PodUID},
			gpu.Label{Name: "resource", Value: o.Resource}, gpu.Label{Name: "sharing", Value: sharing})
		if use.Replicas > 0 {
			labels = append(labels, gpu.Label{Name: "replicas", Value: strconv.Itoa(use.Replicas)})
		}
		series = append(series, gpu.Series{Row: gpu.AllRows, Labels: labels, Fixed: true, Value: gpu.Int(1)})
	}
	return series
}
