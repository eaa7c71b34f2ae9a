package dashboards

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDashboardsOverHours plays a fleet for two hours.
func TestDashboardsOverHours(t *testing.T) {
	const length = 2 * time.Hour
	w := playFleet(t, length, fleetNodes(length)...)
	t.Run("every query answers", w.everyQueryAnswers)
	t.Run("stats and tables show the truth", w.valuesAreTrue)
	t.Run("legends distinguish series", w.legendsAreUnique)
	t.Run("GPUs up counts GPUs", w.gpusUpCountsGPUs)
	t.Run("every sharer is shown", w.sharersAreShown)
	t.Run("an XID is not forever", w.xidsPass)
	t.Run("annotations mark events once", w.annotationsMark)
	t.Run("variables offer values", w.variablesOffer)
	t.Run("a cluster is chosen", w.clusterIsChosen)
	t.Run("either vocabulary", w.vocabulariesAgree)
	t.Run("cost", w.costIsBounded)
}

// onlyOfApp are queries of what app registers, which no played node has: TestExporterDashboardLive
// runs them over whole exporters.
var onlyOfApp = []string{"Reload failed", "Owners not known", "On the fallback", "Dropped", "Scrape", "Memory", "CPU"}

// everyQueryAnswers holds that each query has an answer at some time: each trouble that a panel
// shows happens to a node.
func (w *world) everyQueryAnswers(t *testing.T) {
	w.t = t
	for file, d := range dashboards(t) {
		for _, p := range d.everyPanel() {
			if file == "exporter.json" && slices.Contains(onlyOfApp, p.Title) {
				continue
			}
			for _, q := range p.Targets {
				expr := w.filledFor(withoutDefault(t, q.Expr), nil)
				got := w.ranged(expr, w.end.Add(-w.length), 4*time.Minute)
				if len(got) == 0 {
					t.Errorf("%s: %s %s: no answer to\n%s", file, p.Title, q.RefID, expr)
				}
				for _, m := range legendLabel.FindAllStringSubmatch(q.LegendFormat, -1) {
					if !slices.ContainsFunc(got, func(x point) bool { return x.Metric[m[1]] != "" }) {
						t.Errorf("%s: %s %s: legend %q names %s, which none of the series has", file, p.Title, q.RefID, q.LegendFormat, m[1])
					}
				}
			}
		}
	}
}

var legendLabel = regexp.MustCompile(`{{ *([A-Za-z_]+) *}}`)

// legend is what Grafana makes of a legend for a series.
func legend(format string, metric map[string]string) string {
	return strings.Join(strings.Fields(legendLabel.ReplaceAllStringFunc(format, func(m string) string {
		return metric[legendLabel.FindStringSubmatch(m)[1]]
	})), " ")
}

// With All nodes two series of a panel never have the same legend.
func (w *world) legendsAreUnique(t *testing.T) {
	w.t = t
	checked := 0
	for file, d := range dashboards(t) {
		for _, p := range d.everyPanel() {
			if p.Type != "timeseries" && p.Type != "state-timeline" {
				continue
			}
			of := map[string]string{}
			for _, q := range p.Targets {
				for _, x := range w.instant(w.filledFor(q.Expr, nil), w.asked()) {
					checked++
					text := legend(q.LegendFormat, x.Metric)
					if other, two := of[text]; two {
						t.Errorf("%s: %q: two series %q: %s and %v", file, p.Title, text, other, x.Metric)
					}
					of[text] = q.RefID
				}
			}
		}
	}
	if checked < 300 {
		t.Errorf("only %d legends checked", checked)
	}
}

// find returns a panel.
func find(t *testing.T, file, title, kind string) panel {
	t.Helper()
	for _, p := range dashboards(t)[file+".json"].everyPanel() {
		if p.Title == title && p.Type == kind {
			return p
		}
	}
	t.Fatalf("%s has no %s %q", file, kind, title)
	return panel{}
}

func (w *world) stat(file, title string, at time.Time, values map[string]string) float64 {
	w.t.Helper()
	got := w.instant(w.filledFor(find(w.t, file, title, "stat").Targets[0].Expr, values), at)
	if len(got) != 1 {
		w.t.Fatalf("%s: %q has %d series", file, title, len(got))
	}
	return got[0].value(w.t)
}

func (w *world) instanceOf(host string) string {
	i := slices.IndexFunc(w.nodes, func(p *played) bool { return p.host == host })
	return w.nodes[i].instance()
}

// A node of 6 GPUs with 18 links each and 2 instances has 6 GPUs: links have the label gpu, too.
func (w *world) gpusUpCountsGPUs(t *testing.T) {
	w.t = t
	if got := w.stat("node", "GPUs up", w.asked(), map[string]string{"instance": w.instanceOf("gpu-b-01")}); got != 6 {
		t.Errorf("GPUs up shows %v on a node of 6 GPUs", got)
	}
	if n := len(w.served(w.end, "dcgm_exporter_entity_up")); n < 500 {
		t.Errorf("only %d entities: the test says nothing about links", n)
	}
}

// With a cluster chosen nothing of another one is shown, and nothing at all with one that has no
// nodes.
func (w *world) clusterIsChosen(t *testing.T) {
	w.t = t
	if got := w.stat("fleet", "GPUs", w.asked(), map[string]string{"cluster": "east"}); got != 16 {
		t.Errorf("%v GPUs in two nodes of 8", got)
	}
	east := []string{w.instanceOf("gpu-a-01"), w.instanceOf("gpu-a-02")}
	instances := 0
	for file, d := range dashboards(t) {
		for _, q := range d.queries() {
			expr := withoutDefault(t, q.Expr)
			if got := w.instant(w.filledFor(expr, map[string]string{"cluster": "nowhere"}), w.asked()); len(got) > 0 {
				t.Errorf("%s: %s: a cluster without nodes has %v\n%s", file, q.where, got[0].Metric, q.Expr)
			}
			for _, x := range w.instant(w.filledFor(expr, map[string]string{"cluster": "east"}), w.asked()) {
				if instance := x.Metric["instance"]; instance != "" {
					instances++
					if !slices.Contains(east, instance) {
						t.Errorf("%s: %s: %s is of no cluster\n%s", file, q.where, instance, q.Expr)
					}
				}
			}
		}
	}
	if instances < 300 {
		t.Errorf("only %d series with an instance", instances)
	}
}

// GPU 0 of the node is time-sliced by three pods, whose names the device series do not have.
func (w *world) sharersAreShown(t *testing.T) {
	w.t = t
	got := w.table(find(t, "node", "Who uses what", "table"), w.asked(), map[string]string{"instance": w.instanceOf("gpu-b-01"), "gpu": "0"})
	for _, pod := range []string{"notebooks/jupyter-a", "notebooks/jupyter-b", "analytics/etl-0"} {
		if _, ok := got["gpu-b-01/0//"+pod+"//time-slicing"]; !ok {
			t.Errorf("no row for %s: %v", pod, got)
		}
	}
}

// The last XID stays in the driver; the panel looks at the last hour. One node has the time of each
// XID, the other the last XID alone.
func (w *world) xidsPass(t *testing.T) {
	w.t = t
	for host, gpu := range map[string]string{"gpu-a-01": "3", "gpu-d-01": "0"} {
		still := false
		for _, r := range w.served(w.end, "DCGM_FI_DEV_XID_ERRORS") {
			still = still || r.Get("instance") == w.instanceOf(host) && r.Get("gpu") == gpu && r.v == 31
		}
		if !still {
			t.Errorf("%s: the last XID is gone: the test says nothing", host)
		}
		of := map[string]string{"instance": w.instanceOf(host), "gpu": gpu}
		if got := w.stat("node", "GPUs with an XID", w.end.Add(-62*time.Minute), of); got != 1 {
			t.Errorf("%s: %v GPUs with an XID within the hour after it, want 1", host, got)
		}
		if got := w.stat("node", "GPUs with an XID", w.asked(), of); got != 0 {
			t.Errorf("%s: %v GPUs with an XID when it is older than an hour, want 0", host, got)
		}
	}
}

// Each event is one mark: at most two steps of a minute, on each dashboard.
func (w *world) annotationsMark(t *testing.T) {
	w.t = t
	for file, d := range dashboards(t) {
		marks := map[string]int{}
		for _, a := range d.Annotations.List {
			for _, x := range w.ranged(w.filledFor(a.Expr, nil), w.end.Add(-w.length+time.Minute), time.Minute) {
				if len(x.Values) > 2 {
					t.Errorf("%s: %s: %d marks for one event: %v", file, a.Name, len(x.Values), x.Metric)
				}
				marks[a.Name+": "+legend(a.TitleFormat, x.Metric)+": "+legend(a.TextFormat, x.Metric)]++
			}
		}
		for _, want := range []string{
			"XIDs: XID 31: gpu-a-01 a-01.gpu.test:9400 GPU 3", "XIDs: XID 62: gpu-a-01 a-01.gpu.test:9400 GPU 1",
			"XIDs: XID 79: gpu-a-02 a-02.gpu.test:9400 GPU 5", "Lost GPUs: GPU 5 down: a-02.gpu.test:9400: lost",
			"Reloads: Configuration reloaded: a-01.gpu.test:9400",
		} {
			if marks[want] != 1 {
				t.Errorf("%s: %d marks %q: %v", file, marks[want], want, marks)
			}
		}
	}
}
