package accounting

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// family has a series per owner of an entity, or one per entity if it reports a remainder.
type family struct {
	*catalog.Family
	rest    bool
	measure measure
}

// families lists the families of the package, in the order of a page. PodInfo and AttributionUnavailable report no
// measure.
var families = [...]family{
	{catalog.FamilyNamed(catalog.PodUtilization), false, utilization},
	{catalog.FamilyNamed(catalog.PodMemory), false, memory},
	{catalog.FamilyNamed(catalog.PodActive), false, active},
	{catalog.FamilyNamed(catalog.PodAllocated), false, allocated},
	{catalog.FamilyNamed(catalog.PodEnergy), false, energy},
	{catalog.FamilyNamed(catalog.PodInfo), false, 0},
	{catalog.FamilyNamed(catalog.UnattributedUtilization), true, utilization},
	{catalog.FamilyNamed(catalog.UnattributedMemory), true, memory},
	{catalog.FamilyNamed(catalog.UnattributedActive), true, active},
	{catalog.FamilyNamed(catalog.UnattributedEnergy), true, energy},
	{catalog.FamilyNamed(catalog.AttributionUnavailable), true, 0},
}

// appendFamilies appends the families of this cycle. Their series are valid until the next call.
func (s *session) appendFamilies(list []gpu.Family) []gpu.Family {
	series := s.series[:0]
	for _, d := range families {
		start := len(series)
		f := gpu.Family{Name: d.Name, Type: d.Type, Help: d.HelpLine()}
		switch {
		case d.Name == catalog.PodInfo:
			f.Series = s.infos
		case d.Name == catalog.AttributionUnavailable:
			f.Series = s.missingSeries()
		case d.rest:
			for i := range s.entities {
				e := &s.entities[i]
				series = append(series, gpu.Series{Row: gpu.AllRows, Labels: e.labels, Value: e.totals.now[d.measure]})
			}
		default:
			for i := range s.entities {
				for _, a := range s.entities[i].accounts {
					series = append(series, gpu.Series{Row: gpu.AllRows, Labels: a.labels, Value: a.now[d.measure]})
				}
			}
		}
		if f.Series == nil {
			f.Series = series[start:len(series):len(series)]
		}
		list = append(list, f)
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
