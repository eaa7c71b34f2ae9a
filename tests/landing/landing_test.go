package landing

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/nodeview"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/browser"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/exporter"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

var update = flag.Bool("update", false, "take the pictures of docs/images again")

// patience is how long a page may take on a busy machine.
const patience = 40 * time.Second

const drawn = `document.documentElement.dataset.drawn === "yes"`

func start(t *testing.T, width, height int) *browser.Browser {
	t.Helper()
	b, err := browser.Start(t.Context(), width, height)
	if errors.Is(err, browser.ErrAbsent) {
		material.Skip(t, "chromium-absent", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func open(t *testing.T, b *browser.Browser, url, until string) {
	t.Helper()
	if err := b.Open(url); err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(until, patience); err != nil {
		t.Fatalf("%s: %v; complaints: %q", until, err, b.Complaints())
	}
}

func evaluate[T any](t *testing.T, b *browser.Browser, expression string) T {
	t.Helper()
	var v T
	if err := b.Evaluate(expression, &v); err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// simulated runs the exporter over a simulated node that is read once, so that the page, /metrics
// and the truth are of one moment.
func simulated(t *testing.T, node, scenario string, args ...string) string {
	t.Helper()
	args = append([]string{"--source=sim", "--sim-node=" + node, "--collect-interval=10m"}, args...)
	if scenario != "" {
		file := filepath.Join(t.TempDir(), "scenario.yaml")
		if err := os.WriteFile(file, []byte(scenario), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--sim-scenario="+file)
	}
	e := exporter.Start(t, patience, app.Process{Args: args})
	return "http://" + e.Address
}

// metrics scrapes /metrics.
func metrics(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	res, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// A row is what the page shows of a device, by the headings of the table.
type row map[string]string

// rows reads the table as a person does: by the headings.
func rows(t *testing.T, b *browser.Browser) map[string]row {
	t.Helper()
	return evaluate[map[string]row](t, b, `(() => {
		const heads = [...document.querySelectorAll("#gpus thead th")].map((h) => h.textContent);
		const all = {};
		for (const tr of document.querySelectorAll("#rows tr")) {
			const cells = [...tr.children], one = {};
			cells.forEach((c, i) => one[heads[i]] = c.innerText.replaceAll("\u00a0", " "));
			all[cells[0].firstChild.textContent] = one;
		}
		return all;
	})()`)
}

// nameOf returns the name of the row that a series belongs to.
func nameOf(m *dto.Metric) string {
	if i := label(m, "GPU_I_ID"); i != "" {
		return "GPU " + label(m, "gpu") + " / instance " + i
	}
	return "GPU " + label(m, "gpu")
}

// TestPageShowsTheNode compares each row with /metrics of the same cycle, of nodes of each kind.
func TestPageShowsTheNode(t *testing.T) {
	b := start(t, 1400, 900)
	for _, tt := range []struct {
		node, scenario string
		args           []string
		// temperature and power are the names under which this run serves them.
		temperature, power, busy string
	}{
		{node: "demo", scenario: "faults:\n- {fault: gpu-lost, devices: [\"1\"]}\n", temperature: "DCGM_FI_DEV_GPU_TEMP", power: "DCGM_FI_DEV_POWER_USAGE", busy: "DCGM_FI_PROF_GR_ENGINE_ACTIVE"},
		{node: "shared", temperature: "DCGM_FI_DEV_GPU_TEMP", power: "DCGM_FI_DEV_POWER_USAGE", busy: "DCGM_FI_PROF_GR_ENGINE_ACTIVE"},
		{node: "mig8x7", args: []string{"--vocabulary=current"}, temperature: "DCGM_FI_DEV_GPU_TEMP_CELSIUS", power: "DCGM_FI_DEV_BOARD_POWER_WATTS", busy: "DCGM_FI_PROF_GR_ENGINE_ACTIVE_RATIO"},
		{node: "t4", args: []string{"--use-old-namespace"}, temperature: "DCGM_FI_DEV_GPU_TEMP", power: "DCGM_FI_DEV_POWER_USAGE", busy: "DCGM_FI_PROF_GR_ENGINE_ACTIVE"},
		{node: "grace-hopper", args: []string{"--compatibility=strict", "--enable-health-metrics"}, temperature: "DCGM_FI_DEV_GPU_TEMP", power: "DCGM_FI_DEV_POWER_USAGE", busy: "DCGM_FI_PROF_GR_ENGINE_ACTIVE"},
	} {
		t.Run(tt.node, func(t *testing.T) {
			url := simulated(t, tt.node, tt.scenario, tt.args...)
			open(t, b, url+"/", drawn+` && document.querySelectorAll("#rows tr").length > 0`)
			shown, truth := rows(t, b), metrics(t, url)
			up, gpus := 0, 0
			for _, m := range truth["dcgm_exporter_entity_up"].GetMetric() {
				name := nameOf(m)
				if label(m, "gpu") == "" || label(m, "nvlink") != "" {
					continue
				}
				r, ok := shown[name]
				if !ok {
					t.Errorf("%s has no row", name)
					continue
				}
				want := label(m, "reason")
				if m.GetGauge().GetValue() == 1 {
					want = "up"
				}
				if state := strings.SplitN(r["State"], "\n", 2)[0]; state != want && !(want == "up" && state == "throttled") {
					t.Errorf("%s: state %q, want %q", name, state, want)
				}
				if label(m, "GPU_I_ID") == "" {
					gpus++
					up += int(m.GetGauge().GetValue())
				}
			}
			if gpus == 0 {
				t.Fatal("/metrics has no GPU")
			}
			if text, want := evaluate[string](t, b, `document.querySelector("#tiles dd").firstChild.textContent`), fmt.Sprintf("%d of %d", up, gpus); text != want {
				t.Errorf("GPUs read: %q, want %q", text, want)
			}
			compare := func(family, column string, format func(float64) string) {
				if len(truth[family].GetMetric()) == 0 && (column != "Busy" || tt.node != "t4") {
					t.Errorf("/metrics has no %s", family)
				}
				for _, m := range truth[family].GetMetric() {
					v := m.GetGauge().GetValue()
					if got, want := strings.SplitN(shown[nameOf(m)][column], "\n", 2)[0], format(v); got != want {
						t.Errorf("%s: %s %q, want %q", nameOf(m), column, got, want)
					}
				}
			}
			compare(tt.temperature, "Temperature", func(v float64) string { return fmt.Sprintf("%.0f °C", v) })
			compare(tt.power, "Power", func(v float64) string { return fmt.Sprintf("%.0f W", v) })
			for _, m := range truth[tt.busy].GetMetric() {
				got := strings.SplitN(shown[nameOf(m)]["Busy"], "\n", 2)[0]
				var shownAs float64
				if _, err := fmt.Sscanf(got, "%f %%", &shownAs); err != nil || shownAs < m.GetGauge().GetValue()*100-0.51 || shownAs > m.GetGauge().GetValue()*100+0.51 {
					t.Errorf("%s: busy %q, want %.1f %%", nameOf(m), got, m.GetGauge().GetValue()*100)
				}
			}
			for _, m := range truth["dcgm_pod_gpu_info"].GetMetric() {
				if owners, want := shown[nameOf(m)]["Owners"], label(m, "namespace")+"/"+label(m, "pod"); !strings.Contains(owners, want) {
					t.Errorf("%s: owners %q, want %q", nameOf(m), owners, want)
				}
			}
			if banners := evaluate[string](t, b, `document.getElementById("banners").innerText`); !strings.Contains(banners, "Simulated node") || strings.Contains(banners, "not read") != (up < gpus) {
				t.Errorf("banners %q with %d of %d GPUs up", banners, up, gpus)
			}
			if said := b.Complaints(); len(said) > 0 {
				t.Errorf("the browser complains: %q", said)
			}
		})
	}
}

// served serves the page over documents of the test.
func served(t *testing.T, documents func() []byte) string {
	t.Helper()
	s, err := server.New(server.Options{Acquire: new(exposition.Pages).Acquire, Node: documents, Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	return h.URL
}

func answer(d *nodeview.Document, age float64, stale bool) []byte {
	if d.Entities == nil {
		d.Entities = []nodeview.Entity{} // as nodeview.New has it
	}
	text, err := json.Marshal(map[string]any{"ageSeconds": age, "stale": stale, "node": d})
	if err != nil {
		panic(err) // a document is always JSON
	}
	return text
}

// TestHostileAndLongNames: a name of the node never becomes markup, and nothing overflows a phone.
func TestHostileAndLongNames(t *testing.T) {
	long, evil := strings.Repeat("a-very-long-name-", 15), `<img src=x onerror="document.title='struck'"><script>document.title='struck'</script>`
	number := func(v float64) *float64 { return &v }
	d := &nodeview.Document{
		Version: 1, Time: time.Now(), Host: long + evil, Source: evil, Driver: long,
		Entities: []nodeview.Entity{
			{Name: "GPU 0", Kind: "GPU", Model: long + evil, UUID: evil, BusyRatio: number(0.5), Throttle: []string{long, evil}, Sharing: evil, Owners: []nodeview.Owner{
				{Namespace: long, Pod: evil, Containers: []string{long, evil}}, {Job: strings.Repeat("x", 300)},
			}},
			{Name: "GPU 1", Kind: "GPU", Problem: &nodeview.Problem{Reason: evil, Text: strings.Repeat("y", 400)}},
		},
		XIDs:        []nodeview.XID{{Entity: "GPU 0", XID: 79, Text: evil, Pod: strings.Repeat("z", 300)}},
		Unavailable: []nodeview.Unavailable{{Field: strings.Repeat("F", 200), Reason: evil, Entities: []string{long}}},
		Others:      []nodeview.Others{{Kind: evil, Down: []nodeview.Down{{Name: long, Problem: nodeview.Problem{Reason: evil, Text: long}}}}},
	}
	url := served(t, func() []byte { return answer(d, 1, false) })
	b := start(t, 360, 740)
	open(t, b, url+"/", drawn)
	for _, width := range []int{320, 360, 800, 1400} {
		if err := b.Resize(width, 740); err != nil {
			t.Fatal(err)
		}
		if over := evaluate[float64](t, b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
			t.Errorf("at %d px the page is %v px too wide", width, over)
		}
	}
	if title := evaluate[string](t, b, `document.title`); title == "struck" {
		t.Error("a name became markup")
	}
	if n := evaluate[int](t, b, `document.querySelectorAll("img, #gpus script").length`); n > 0 {
		t.Errorf("%d elements were made of names", n)
	}
	if text := evaluate[string](t, b, `document.body.innerText`); strings.Count(text, evil) < 8 {
		t.Errorf("names are not shown as they are:\n%s", text)
	}
	if said := b.Complaints(); len(said) > 0 {
		t.Errorf("the browser complains: %q", said)
	}
}

// TestFiguresStayWhole: no state and no figure with its unit is broken over two lines on a desktop.
func TestFiguresStayWhole(t *testing.T) {
	number := func(v float64) *float64 { return &v }
	d := &nodeview.Document{Version: 1, Time: time.Now(), Host: "node-7", Source: "nvml"}
	for i := range 2 {
		d.Entities = append(d.Entities, nodeview.Entity{
			Name: fmt.Sprint("GPU ", i), Kind: "GPU", Model: "NVIDIA H100 80GB HBM3", BusyRatio: number(0.97), PowerWatts: number(696), SMClockHertz: number(1.95e9),
			TemperatureCelsius: number(66), MemoryTemperatureCelsius: number(76), Throttle: []string{"power_cap"},
			Owners: []nodeview.Owner{{Namespace: "research", Pod: "llm-pretrain-with-a-longer-name-0", Containers: []string{"trainer"}}},
		})
	}
	url := served(t, func() []byte { return answer(d, 1, false) })
	b := start(t, 1200, 740)
	open(t, b, url+"/", drawn)
	for _, width := range []int{760, 900, 1200, 1600} {
		if err := b.Resize(width, 740); err != nil {
			t.Fatal(err)
		}
		broken := evaluate[[]string](t, b, `[...document.querySelectorAll("#gpus td")].filter((td) => td.dataset.label !== "Owners").flatMap((td) => {
			const walker = document.createTreeWalker(td, NodeFilter.SHOW_TEXT), found = [];
			for (let n; (n = walker.nextNode());) {
				if (n.parentElement.closest(".sub, svg")) continue;
				const range = document.createRange();
				range.selectNodeContents(n);
				if (range.getClientRects().length > 1) found.push(td.dataset.label + ": " + n.data);
			}
			return found;
		})`)
		if len(broken) > 0 {
			t.Errorf("at %d px over two lines: %q", width, broken)
		}
		if n := evaluate[int](t, b, `document.querySelectorAll("#gpus td").length`); n < 12 {
			t.Fatalf("%d cells", n)
		}
	}
}

// TestStates: what a person must not overlook stands above everything else.
func TestStates(t *testing.T) {
	at := time.Date(2026, 3, 4, 9, 0, 0, 0, time.UTC)
	base := func() *nodeview.Document {
		return &nodeview.Document{Version: 1, Time: at, Host: "node-7", Source: "nvml"}
	}
	released, failed, lost := base(), base(), base()
	released.Problem = &nodeview.Problem{Reason: "released", Text: "released on request"}
	failed.Problem = &nodeview.Problem{Reason: "unavailable", Text: "no driver"}
	lost.Entities = []nodeview.Entity{{Name: "GPU 3", Kind: "GPU", Problem: &nodeview.Problem{Reason: "lost", Text: "it fell off"}}}
	b := start(t, 1000, 700)
	for name, tt := range map[string]struct {
		body  []byte
		want  []string
		never string
	}{
		"waiting":  {nil, []string{"Waiting for the first collection"}, "Simulated"},
		"released": {answer(released, 1, false), []string{"released on request"}, "No data"},
		"failed":   {answer(failed, 1, false), []string{"No data (unavailable): no driver"}, "released"},
		"lost":     {answer(lost, 1, false), []string{"GPU 3 is not read: lost"}, "No data"},
		"stale":    {answer(base(), 300, true), []string{"The collection is late", "5 min ago"}, "No data"},
		"healthy":  {answer(base(), 1, false), nil, "."},
	} {
		t.Run(name, func(t *testing.T) {
			url := served(t, func() []byte { return tt.body })
			open(t, b, url+"/", `document.documentElement.dataset.drawn !== undefined`)
			text := evaluate[string](t, b, `document.getElementById("banners").innerText`)
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("banners %q, want %q", text, want)
				}
			}
			if strings.Contains(text, tt.never) {
				t.Errorf("banners %q", text)
			}
		})
	}
}

// TestServerGone: the page keeps what it knows and says that it is old.
func TestServerGone(t *testing.T) {
	d := &nodeview.Document{Version: 1, Time: time.Now(), Host: "node-7", Entities: []nodeview.Entity{{Name: "GPU 0", Kind: "GPU"}}}
	s, err := server.New(server.Options{Acquire: new(exposition.Pages).Acquire, Node: func() []byte { return answer(d, 1, false) }, Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	defer h.Close()
	b := start(t, 1000, 700)
	open(t, b, h.URL+"/", drawn)
	h.CloseClientConnections()
	h.Close()
	if err := b.Evaluate(`refresh()`, nil); err != nil {
		t.Fatal(err)
	}
	if text := evaluate[string](t, b, `document.getElementById("banners").innerText`); !strings.Contains(text, "does not answer") {
		t.Errorf("banners %q", text)
	}
	if n := evaluate[int](t, b, `document.querySelectorAll("#rows tr").length`); n != 1 {
		t.Errorf("%d rows, want the one that was known", n)
	}
}

// TestSparklines: the history is the browser's, and outlives a reload of the page.
func TestSparklines(t *testing.T) {
	at, n := time.Now().Add(-10*time.Minute), 0
	url := served(t, func() []byte {
		n++
		busy := float64(n%2) / 2
		return answer(&nodeview.Document{Version: 1, Time: at.Add(time.Duration(n) * 30 * time.Second), Entities: []nodeview.Entity{
			{Name: "GPU 0", Kind: "GPU", UUID: "GPU-1", BusyRatio: &busy}, {Name: "GPU 1", Kind: "GPU", UUID: "GPU-2"},
		}}, 0, false)
	})
	b := start(t, 1000, 700)
	open(t, b, url+"/", drawn)
	for range 4 {
		if err := b.Evaluate(`refresh()`, nil); err != nil {
			t.Fatal(err)
		}
	}
	const points = `[...document.querySelectorAll(".spark polyline")].map((p) => p.getAttribute("points").split(" ").length)`
	if got := evaluate[[]int](t, b, points); len(got) != 1 || got[0] < 5 {
		t.Errorf("points of sparklines: %v, want one of 5 or more", got)
	}
	if text := evaluate[string](t, b, `document.querySelector(".spark").getAttribute("aria-label")`); !strings.Contains(text, "min") {
		t.Errorf("label of the sparkline: %q", text)
	}
	open(t, b, url+"/?again", drawn)
	if got := evaluate[[]int](t, b, points); len(got) != 1 || got[0] < 6 {
		t.Errorf("points of sparklines after a reload: %v", got)
	}
}

// contrasts returns the texts of the page whose color is too near to that of their ground, by WCAG
// 2.1's formula for contrast (4.5 for text).
const contrasts = `(() => {
	const parse = (c) => c.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
	const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
	const bad = [];
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.textContent.trim() || !e.checkVisibility() || e.closest("noscript, script")) continue;
		const a = light(parse(getComputedStyle(e).color)), b = light(ground(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) bad.push(walk.currentNode.textContent.trim() + " " + ratio.toFixed(2));
	}
	return bad;
})()`

// TestForEverybody: names for a screen reader, a way for the keyboard, contrast in light and dark.
func TestForEverybody(t *testing.T) {
	url := simulated(t, "demo", "faults:\n- {fault: gpu-lost, devices: [\"1\"]}\n", "--collectors=../../etc/fleet-counters.csv")
	b := start(t, 1400, 900)
	open(t, b, url+"/", drawn+` && document.querySelectorAll("#rows tr").length > 0`)
	for _, dark := range []bool{false, true} {
		if err := b.Dark(dark); err != nil {
			t.Fatal(err)
		}
		if bad := evaluate[[]string](t, b, contrasts); len(bad) > 0 {
			t.Errorf("dark %t: too little contrast: %q", dark, bad)
		}
	}
	for what, wrong := range map[string]string{
		"tables without headings":          `[...document.querySelectorAll("section:not([hidden]) table")].filter((t) => !t.querySelector("th[scope=col]") || !t.querySelector("tbody th[scope=row]")).length`,
		"pictures without a name":          `[...document.querySelectorAll("svg")].filter((s) => !s.getAttribute("aria-label") && s.getAttribute("aria-hidden") !== "true").length`,
		"regions without a name":           `[...document.querySelectorAll("section, [role=region], nav")].filter((s) => !s.getAttribute("aria-label") && !document.getElementById(s.getAttribute("aria-labelledby"))).length`,
		"scrolled regions without a focus": `[...document.querySelectorAll(".wide")].filter((s) => s.tabIndex !== 0).length`,
		"ids that stand twice":             `(() => { const ids = [...document.querySelectorAll("[id]")].map((e) => e.id); return ids.length - new Set(ids).size; })()`,
		"languages that are missing":       `document.documentElement.lang === "en" ? 0 : 1`,
		"headings out of order":            `document.querySelectorAll("h1").length === 1 && !document.querySelector("h3") ? 0 : 1`,
		"live regions that are missing":    `document.querySelector("#banners[role=status]") ? 0 : 1`,
	} {
		if n := evaluate[int](t, b, wrong); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	first := evaluate[string](t, b, `document.querySelector("a").getAttribute("href")`)
	if n := evaluate[int](t, b, fmt.Sprintf(`document.querySelectorAll(%q).length`, first)); first != "#gpus" || n != 1 {
		t.Errorf("the first link leads to %q, which is there %d times", first, n)
	}
}

// TestTopologyMatrix: the matrix is what "topo" says.
func TestTopologyMatrix(t *testing.T) {
	url := simulated(t, "nvswitch", "", "--collectors=../../etc/fleet-counters.csv")
	b := start(t, 1400, 900)
	open(t, b, url+"/", drawn+` && document.querySelectorAll("#matrix tbody tr").length > 0`)
	shown := evaluate[map[string]string](t, b, `(() => {
		const all = {}, heads = [...document.querySelectorAll("#matrix thead tr > *")].map((e) => e.textContent);
		for (const tr of document.querySelectorAll("#matrix tbody tr")) [...tr.children].forEach((c, i) => { if (i) all[tr.children[0].textContent + " " + heads[i]] = c.textContent; });
		return all;
	})()`)
	pairs := metrics(t, url)["DCGM_EXP_GPU_PAIR_INFO"].GetMetric()
	if len(pairs) == 0 {
		t.Fatal("/metrics has no pairs")
	}
	for _, m := range pairs {
		want := label(m, "path")
		if n := label(m, "nvlinks"); n != "" && n != "0" {
			want = "NV" + n
		}
		a, b := "GPU "+label(m, "gpu"), "GPU "+label(m, "peer_gpu")
		if shown[a+" "+b] != want || shown[b+" "+a] != want {
			t.Errorf("%s to %s: %q and %q, want %q", a, b, shown[a+" "+b], shown[b+" "+a], want)
		}
	}
}

// TestNoTopology: where pairs are not collected, the page says what adds them.
func TestNoTopology(t *testing.T) {
	url := simulated(t, "t4", "")
	b := start(t, 1400, 900)
	open(t, b, url+"/", drawn+` && document.querySelectorAll("#rows tr").length > 0`)
	if text := evaluate[string](t, b, `document.getElementById("topology").innerText`); !strings.Contains(text, "DCGM_EXP_GPU_PAIR_INFO") || strings.Contains(text, "NV:") {
		t.Errorf("the section says %q", text)
	}
}

// TestOff: without the page there is neither it nor its data.
func TestOff(t *testing.T) {
	url := simulated(t, "single", "", "--web-landing-page=false")
	for _, path := range []string{"/", "/node.json", "/landing/page.js"} {
		res, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d", path, res.StatusCode)
		}
	}
}

// TestPictures takes the pictures of docs/images with -update, and checks that they are there.
func TestPictures(t *testing.T) {
	folder := "../../docs/images"
	pictures := map[string]struct {
		width, height int
		dark          bool
	}{"page.png": {1200, 900, false}, "page-dark.png": {1200, 620, true}, "page-narrow.png": {390, 800, false}}
	if !*update {
		for name := range pictures {
			if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
				t.Errorf("%v: run go test ./tests/landing -run ^TestPictures$ -update", err)
			}
		}
		return
	}
	url := simulated(t, "demo", "faults:\n- {fault: gpu-lost, at: 9s, devices: [\"1\"]}\n- {fault: xid, at: 8s, devices: [\"1\"], xids: [79]}\n",
		"--collectors=../../etc/fleet-counters.csv", "--collect-interval=1s")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	b := start(t, 1280, 900)
	open(t, b, url+"/", drawn)
	// Half a minute of history: the sparklines are real.
	if err := b.Wait(`[...document.querySelectorAll(".spark polyline")].some((p) => p.getAttribute("points").split(" ").length > 8)`, 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range pictures {
			if !yield(name) {
				return
			}
		}
	}) {
		p := pictures[name]
		if err := errors.Join(b.Dark(p.dark), b.Resize(p.width, p.height)); err != nil {
			t.Fatal(err)
		}
		// The machine that takes the picture has a name that says nothing.
		if err := b.Evaluate(`document.getElementById("host").textContent = "gpu-node-7"`, nil); err != nil {
			t.Fatal(err)
		}
		png, err := b.Picture()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
