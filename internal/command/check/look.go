package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A machine is what was seen of a source.
type machine struct {
	about   string
	metrics map[string]seen // by the name that was requested
}

// seen is how a metric fared in the last cycle.
type seen struct {
	served, all map[gpu.Kind]int
	series      int // of an exporter family
	reasons     map[string]bool
}

// collect collects for a few cycles what a set requests.
func (c Command) collect(ctx context.Context, cfg *config.Config, set app.CounterSet) (machine, error) {
	plan, err := set.Plan(cfg, interval)
	if err != nil {
		return machine{}, err
	}
	source, err := c.Open(ctx, cfg, plan)
	if err != nil {
		return machine{}, err
	}
	var here machine
	err = app.Collect(ctx, source, plan, cycles, func(s *gpu.Snapshot) { here = see(plan, s) })
	return here, err
}

// see takes from a snapshot what outlives it.
func see(plan *gpu.Plan, s *gpu.Snapshot) machine {
	m := machine{metrics: map[string]seen{}, about: about(s.Topology)}
	metric := func(name string) seen {
		if _, ok := m.metrics[name]; !ok {
			m.metrics[name] = seen{served: map[gpu.Kind]int{}, all: map[gpu.Kind]int{}, reasons: map[string]bool{}}
		}
		return m.metrics[name]
	}
	for _, column := range s.Columns {
		sight := metric(column.Counter.Name)
		field := &plan.Fields[column.Counter.Field]
		for row := range s.Topology.Devices {
			if !s.Topology.Serves(field, row) {
				continue
			}
			kind := s.Topology.Devices[row].Entity.Kind
			sight.all[kind]++
			if row < len(column.Values) && !column.Values[row].IsAbsent() {
				sight.served[kind]++
			}
		}
	}
	for _, family := range s.Families {
		sight := metric(family.Name)
		for i := range family.Series {
			if !family.Series[i].Value.IsAbsent() {
				sight.series++
			}
		}
		m.metrics[family.Name] = sight
	}
	for _, missing := range s.Health.Unavailable {
		metric(missing.Field).reasons[missing.Reason] = true
	}
	for _, e := range s.Health.Entities {
		if e.Err == nil {
			continue
		}
		for _, sight := range m.metrics {
			sight.reasons[gpu.Reason(e.Err)] = true
		}
	}
	return m
}

// about says what was looked at.
func about(t *gpu.Topology) string {
	n := map[gpu.Kind]int{}
	for i := range t.Devices {
		n[t.Devices[i].Entity.Kind]++
	}
	var words []string
	for k := gpu.KindGPU; k <= gpu.KindNode; k++ {
		if n[k] > 0 {
			words = append(words, fmt.Sprintf("%d × %s", n[k], k))
		}
	}
	if words == nil {
		words = []string{"no entities"}
	}
	text := "Source " + t.Source + ": " + strings.Join(words, ", ")
	if t.Driver != "" {
		text += ", driver " + t.Driver
	}
	return text + "."
}

// outcome says how a request fared; "" if nothing was seen of it.
func (m machine) outcome(r counters.Request) string {
	sight, ok := m.metrics[r.Name]
	if !ok {
		return ""
	}
	var parts []string
	served, all := 0, 0
	for k := gpu.KindGPU; k <= gpu.KindNode; k++ {
		if sight.all[k] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d/%d", k, sight.served[k], sight.all[k]))
			served += sight.served[k]
			all += sight.all[k]
		}
	}
	var reasons []string
	for reason := range sight.reasons {
		reasons = append(reasons, strings.ReplaceAll(reason, "_", " "))
	}
	slices.Sort(reasons)
	why := strings.Join(reasons, ", ")
	switch {
	case sight.series > 0:
		return fmt.Sprintf("collected: %d series", sight.series)
	case served > 0 && served == all:
		return "collected: " + strings.Join(parts, ", ")
	case served > 0 && why != "":
		return "collected in part: " + strings.Join(parts, ", ") + " (" + why + ")"
	case served > 0:
		return "collected in part: " + strings.Join(parts, ", ")
	case why != "":
		return "not collected here: " + why
	default:
		return "no value yet"
	}
}
