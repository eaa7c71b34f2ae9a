package accounting

import (
	"maps"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// podFamilies have a series for each owner of an entity. restFamilies have one series for each entity: the remainder
// that belongs to no pod.
var (
	podFamilies = map[string]measure{
		catalog.PodUtilization: utilization, catalog.PodMemory: memory, catalog.PodActive: active,
		catalog.PodAllocated: allocated, catalog.PodEnergy: energy,
	}
	restFamilies = map[string]measure{
		catalog.UnattributedUtilization: utilization, catalog.UnattributedMemory: memory,
		catalog.UnattributedActive: active, catalog.UnattributedEnergy: energy,
	}
	families = catalog.Families(catalog.Accounting) // the order on a page
)

// appendFamilies appends the families of this cycle. Their series are valid until the next call.
func (s *session) appendFamilies(list []gpu.Family) []gpu.Family {
	series := s.series[:0]
	for i := range families {
		d := &families[i]
		start := len(series)
		if m, ok := podFamilies[d.Name]; ok {
			for _, e := range s.entities {
				for _, a := range e.accounts {
					series = append(series, gpu.Series{Row: gpu.AllRows, Labels: a.labels, Value: a.now[m]})
				}
			}
		}
		if m, ok := restFamilies[d.Name]; ok {
			for _, e := range s.entities {
				series = append(series, gpu.Series{Row: gpu.AllRows, Labels: e.labels, Value: e.totals.now[m]})
			}
		}
		f := gpu.Family{Name: d.Name, Type: d.Type, Help: d.HelpLine(), Series: series[start:len(series):len(series)]}
		switch d.Name {
		case catalog.PodInfo:
			f.Series = s.infos
		case catalog.AttributionUnavailable:
			byText := func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }
			for _, u := range slices.SortedFunc(maps.Keys(s.missing), byText) {
				labels := []gpu.Label{{Name: "what", Value: u[0]}, {Name: "reason", Value: u[1]}}
				f.Series = append(f.Series, gpu.Series{Row: gpu.AllRows, Labels: labels, Value: gpu.Int(1)})
			}
		}
		list = append(list, f)
	}
	s.series = series
	return list
}

// ownerLabels returns the labels of an owner's series for an entity. A container label, if any, follows the pod label.
func ownerLabels(e *sharedDevice, o *gpu.Owner, container string) []gpu.Label {
	if o.Pod == "" {
		return slices.Concat(e.labels, o.PodLabels(), o.Labels)
	}
	return slices.Concat(e.labels, gpu.Labels("namespace", o.Namespace, "pod", o.Pod, "container", container))
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

// appendOwn appends series with the owners' shares to each utilization and used-memory counter of a shared GPU, as
// dcgm-exporter does with --kubernetes-virtual-gpus. The value of an unknown share is absent.
func (s *Accountant) appendOwn(list []gpu.Family) []gpu.Family {
	for i := range s.cycle.Plan.Counters {
		counter := &s.cycle.Plan.Counters[i]
		field := s.cycle.Plan.Fields[counter.Field].ID
		m, unit := utilization, 100.0 // the field is in percent
		if field == catalog.FBUsed {
			m, unit = memory, 1.0/bytesPerMiB
		}
		if counter.Type == gpu.MetricLabel || field != catalog.GPUUtil && field != catalog.FBUsed {
			continue
		}
		f := gpu.Family{Name: counter.Name, Type: counter.Type, Help: counter.Help, OwnersOnly: true}
		for _, e := range s.entities {
			if s.cycle.Value(field, e.row).IsAbsent() {
				continue
			}
			use := s.owners.UseOf(e.row)
			for k := range use.Owners {
				o := &use.Owners[k]
				var value gpu.Value
				if a := s.accounts[keyOf(e, o)]; slices.Contains(e.accounts, a) {
					value = a.now[m].Scale(unit).Scale(counter.Scale)
				}
				if labels := o.VirtualGPULabels(); labels != nil {
					f.Series = append(f.Series, gpu.Series{Row: e.row, NoOwner: true, Owner: labels, Value: value})
				}
			}
		}
		list = append(list, f)
	}
	return list
}
