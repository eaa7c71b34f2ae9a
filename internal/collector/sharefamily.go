package collector

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

// tell appends the families with what is known now.
func (s *sharer) tell(list []gpu.Family) []gpu.Family {
	for i := range s.families {
		s.families[i].Series = s.families[i].Series[:0]
	}
	add := func(family int, labels []gpu.Label, v gpu.Value) {
		if !v.IsAbsent() {
			f := &s.families[family]
			f.Series = append(f.Series, gpu.Series{Row: gpu.AllRows, Labels: labels, Fixed: true, Value: v})
		}
	}
	sum := func(family int, labels []gpu.Label, known bool, v float64) {
		if known {
			add(family, labels, gpu.Float(v))
		}
	}
	for i := range s.rows {
		r := &s.rows[i]
		for _, a := range r.accounts {
			add(familyUtilization, a.labels, a.util)
			add(familyMemory, a.labels, a.memory)
			sum(familyActive, a.labels, a.hasActive, a.active)
			sum(familyAllocated, a.labels, a.hasAllocated, a.allocated)
			sum(familyEnergy, a.labels, a.hasEnergy, a.energy)
		}
		add(familyRestUtilization, r.labels, r.util)
		add(familyRestMemory, r.labels, r.memory)
		sum(familyRestActive, r.labels, r.ledger.hasActive, r.ledger.active)
		sum(familyRestEnergy, r.labels, r.ledger.hasEnergy, r.ledger.energy)
	}
	for i := range s.roots {
		r := &s.roots[i]
		sum(familyRestEnergy, r.labels, r.ledger.hasEnergy, r.ledger.energy)
	}
	s.families[familyInfo].Series = append(s.families[familyInfo].Series, s.infos...)
	slices.SortFunc(s.lacks, func(a, b lack) int { return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.reason, b.reason)) })
	for _, l := range s.lacks {
		f := &s.families[familyUnavailable]
		labels := []gpu.Label{{Name: "what", Value: l.what}, {Name: "reason", Value: l.reason}}
		f.Series = append(f.Series, gpu.Series{Row: gpu.AllRows, Labels: labels, Value: gpu.Int(1)})
	}
	return append(list, s.families...)
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
