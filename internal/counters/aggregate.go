package counters

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// aggregates are what a family is shown with, in this order, and what their help says.
var aggregates = [...]struct {
	gpu.Aggregate
	help string
}{
	{gpu.Min, "Lowest of the samples since the previous collection."},
	{gpu.Max, "Highest of the samples since the previous collection."},
	{gpu.Mean, "Mean of the samples since the previous collection."},
}

// aggregate adds the aggregates of a counter, and has its field sampled for them.
func (b *planner) aggregate(c gpu.Counter) {
	f := &b.plan.Fields[c.Field]
	f.Every = true
	f.Interval = shorter(f.Interval, b.options.AggregateInterval, b.options.Interval)
	name, help := c.Name, strings.TrimSpace(c.Help)
	for _, a := range aggregates {
		c.Name, c.Aggregate, c.Help = name+a.Suffix(), a.Aggregate, strings.TrimSpace(help+" "+a.help)
		b.plan.Counters = append(b.plan.Counters, c)
	}
}

// CheckAggregate returns why a request cannot be shown with its minimum, maximum and mean, nil
// where it can. requested reports whether another request has a name.
func (r Request) CheckAggregate(requested func(name string) bool) error {
	switch {
	case r.Family != nil:
		return fmt.Errorf("%s is a family of the exporter's own: expected a gauge of a field", r.Name)
	case r.Named.Entry.Type == catalog.Text:
		return fmt.Errorf("%s is a text: expected a gauge of a field", r.Name)
	case r.Named.Entry.Events:
		return fmt.Errorf("the samples of %s are events, of which each counts: expected a gauge of a field", r.Name)
	case r.Type != gpu.MetricGauge:
		return fmt.Errorf("%s is requested as a %s: expected a gauge", r.Name, r.Type)
	}
	for _, a := range aggregates {
		name := r.Name + a.Suffix()
		if _, known := catalog.Lookup(name); known || catalog.FamilyNamed(name) != nil || requested(name) {
			return fmt.Errorf("%s cannot have its %s: %s is another metric", r.Name, strings.ToLower(a.Suffix()[1:]), name)
		}
	}
	return nil
}
