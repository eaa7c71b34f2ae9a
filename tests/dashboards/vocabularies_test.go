package dashboards

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// The same machine under either vocabulary, and under both, gives every panel the same answer.
func (*world) vocabulariesAgree(t *testing.T) {
	const length = 20 * time.Minute
	nodes := []*played{
		{host: "gpu-v-01", node: "demo", vocabulary: catalog.Classic},
		{host: "gpu-v-02", node: "demo", vocabulary: catalog.Current},
		{host: "gpu-v-03", node: "demo", vocabulary: catalog.Both},
	}
	w := playFleet(t, length, nodes...)
	answers := 0
	for file, d := range dashboards(t) {
		for _, q := range d.queries() {
			// How long scrapes and pages are, and what fields are called, is another matter.
			if strings.Contains(q.Expr, "scrape_samples_scraped") || strings.Contains(q.Expr, "dcgm_exporter_field_unavailable") {
				continue
			}
			of := func(host string) map[string]float64 {
				found := map[string]float64{}
				for _, x := range w.instant(w.filledFor(q.Expr, map[string]string{"instance": w.instanceOf(host)}), w.asked()) {
					var key []string
					for _, k := range slices.Sorted(maps.Keys(x.Metric)) {
						if k != "instance" && k != "hostname" && k != "node" {
							key = append(key, k+"="+x.Metric[k])
						}
					}
					found[strings.Join(key, ",")] = x.value(t)
				}
				return found
			}
			classic := of("gpu-v-01")
			answers += len(classic)
			for _, host := range []string{"gpu-v-02", "gpu-v-03"} {
				other := of(host)
				if !maps.EqualFunc(classic, other, func(a, b float64) bool { return nearly(a, b, 1e-6) }) {
					t.Errorf("%s: %s: under %s %v, under classic %v\n%s", file, q.where, host, other, classic, q.Expr)
				}
			}
		}
	}
	if answers < 500 {
		t.Errorf("only %d answers", answers)
	}
}
