package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/html"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// An element is an HTML element of the page after its scripts have run.
type element struct{ *html.Node }

// all returns the elements below e with one of the names.
func (e element) all(names ...string) (found []element) {
	for n := range e.Descendants() {
		if n.Type == html.ElementNode && slices.Contains(names, n.Data) {
			found = append(found, element{n})
		}
	}
	return found
}

// attr returns the value of an attribute, or "".
func (e element) attr(name string) string {
	for _, a := range e.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// text returns the text of e and its children.
func (e element) text() string {
	var b strings.Builder
	for n := range e.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(strings.ReplaceAll(n.Data, "\u00a0", " "))
		}
	}
	return b.String()
}

// byID returns the element below e with an id. The test ends if there is none.
func (e element) byID(t *testing.T, id string) element {
	t.Helper()
	for n := range e.Descendants() {
		if n.Type == html.ElementNode && (element{n}).attr("id") == id {
			return element{n}
		}
	}
	t.Fatalf("no element with id %q", id)
	return element{}
}

// browse opens a page in Chromium with additional arguments. It waits for some seconds of the page's virtual time, and
// returns the document.
func browse(t *testing.T, url string, seconds int, args ...string) element {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
		}
	}
	if program == "" {
		material.Skip(t, "chromium-absent", errors.New("no chromium in PATH"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args = append(args, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), fmt.Sprint("--virtual-time-budget=", seconds*1000), "--dump-dom", url)
	cmd := exec.CommandContext(ctx, program, args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &complaints)
	}
	document, err := html.Parse(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	return element{document}
}

// rowsOf returns the cells of the table, by device and column heading.
func rowsOf(t *testing.T, document element) map[string]map[string]string {
	t.Helper()
	rows := map[string]map[string]string{}
	for _, tr := range document.byID(t, "rows").all("tr") {
		row := map[string]string{}
		for _, td := range tr.all("td") {
			row[td.attr("data-label")] = td.text()
		}
		rows[tr.all("th")[0].FirstChild.Data] = row // the first line of the heading is the name of the device
	}
	return rows
}

// nameOf returns the name of a sample's device on the page.
func nameOf(s prom.Sample) string {
	if i := s.Labels.Get("GPU_I_ID"); i != "" {
		return "GPU " + s.Labels.Get("gpu") + " / instance " + i
	}
	return "GPU " + s.Labels.Get("gpu")
}

// vocabulary maps columns of the table to families. The factor converts the family's value to the displayed one.
type vocabulary map[string]struct {
	family string
	factor float64
}

// The page shows the values of /metrics and requests them once per interval. It never interprets a label as markup.
func TestPage(t *testing.T) {
	t.Parallel()
	for name, columns := range map[string]vocabulary{
		"classic": {
			"Busy": {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", 100}, "Memory": {"DCGM_FI_DEV_FB_USED", 1. / 1024},
			"Power": {"DCGM_FI_DEV_POWER_USAGE", 1}, "Temperature": {"DCGM_FI_DEV_GPU_TEMP", 1},
			"SM clock": {"DCGM_FI_DEV_SM_CLOCK", 1},
		},
		"current": {
			"Busy": {"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 100}, "Memory": {"DCGM_FI_DEV_FB_USED_BYTES", 1. / (1 << 30)},
			"Power": {"DCGM_FI_DEV_BOARD_POWER_WATTS", 1}, "Temperature": {"DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1},
			"SM clock": {"DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e-6},
		},
	} {
		t.Run(name, func(t *testing.T) { testNode(t, name, columns) })
	}
	t.Run("hostile labels", testHostile)
	t.Run("trouble", testTrouble)
	t.Run("phone", testPhone)
}

// testNode compares the page with /metrics, for a simulated node that has shared GPUs and MIG. The collection interval
// is so long that both show the values of the same read.
func testNode(t *testing.T, vocabulary string, columns vocabulary) {
	r := serve(t, nil, "--source=sim", "--sim-node=shared", "-c=600000", "--vocabulary="+vocabulary,
		"-f", root+"/etc/fleet-counters.csv")
	document := browse(t, r.url+"/", 5)
	shown, truth := rowsOf(t, document), prom.Parse(t, r.scrape())
	up := 0
	for _, s := range truth["dcgm_exporter_entity_up"] {
		if s.Labels.Get("gpu") == "" || s.Labels.Has("nvlink") {
			continue
		}
		up++
		state := shown[nameOf(s)]["State"]
		if !strings.HasPrefix(state, "up") && !strings.HasPrefix(state, "throttled") {
			t.Errorf("%s: state = %q, want up or throttled", nameOf(s), state)
		}
	}
	if up == 0 || up != len(shown) {
		t.Errorf("table rows = %d, want one for each of %d devices", len(shown), up)
	}
	for column, of := range columns {
		if len(truth[of.family]) == 0 {
			t.Errorf("/metrics has no %s", of.family)
		}
		for _, s := range truth[of.family] {
			var got float64
			text := strings.ReplaceAll(shown[nameOf(s)][column], ",", "")
			if _, err := fmt.Sscan(text, &got); err != nil || math.Abs(got-s.Value*of.factor) > 0.51 {
				t.Errorf("%s: column %s = %q, want %v", nameOf(s), column, text, s.Value*of.factor)
			}
		}
	}
	if len(truth["dcgm_pod_gpu_info"]) == 0 {
		t.Error("/metrics has no owners")
	}
	for _, s := range truth["dcgm_pod_gpu_info"] {
		want := s.Labels.Get("namespace") + "/" + s.Labels.Get("pod")
		if owners := shown[nameOf(s)]["Owners"]; !strings.Contains(owners, want) {
			t.Errorf("%s: owners = %q, want %q in them", nameOf(s), owners, want)
		}
	}
	banners := document.byID(t, "banners").text()
	if !strings.Contains(banners, "Simulated node") || strings.Contains(banners, "not read") {
		t.Errorf("banners = %q, want one that says Simulated node, and none that says not read", banners)
	}
}

// landing returns the handler of a server that serves the landing page at /, and the text of current at /metrics.
func landing(t *testing.T, interval time.Duration, current func() string) http.Handler {
	t.Helper()
	s, err := server.New(server.Options{
		Address: "127.0.0.1:0", LandingPage: true, Interval: interval,
		Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Current: func() *exposition.Page { return exposition.NewPage([]byte(current())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

// The page of testdata/trouble.prom lists broken GPUs first. The file has a lost GPU and its links, verdicts, XIDs,
// heat, and a busy GPU at its limits. The page does not warn about a GPU that is only busy.
func testTrouble(t *testing.T) {
	h := httptest.NewServer(landing(t, time.Minute, func() string { return folder.Read(t, "testdata/trouble.prom") }))
	defer h.Close()
	document := browse(t, h.URL+"/", 3)

	const remap, lost = "replace: No spare row is left for a faulty one",
		"drain: The GPU has fallen off the bus, or does not answer"
	if got, want := document.byID(t, "banners").text(), "GPU 1: "+remap+".GPU 3: "+lost+"."; got != want {
		t.Errorf("banners = %q, want %q", got, want)
	}
	rows := rowsOf(t, document)
	for device, want := range map[string]string{
		"GPU 0": "upat its power limit and the driver's temperature limit",
		"GPU 1": "replace" + remap,
		"GPU 2": "watchwatch: Heat or power reduces the clocks in every intervalthrottled by hw_thermal",
		"GPU 3": "lostthe GPU, engine or driver stopped answering" + lost,
	} {
		if got := rows[device]["State"]; got != want {
			t.Errorf("state of %s = %q, want %q", device, got, want)
		}
	}
	for _, tt := range []struct {
		id, class string
		want      []string
	}{
		{"rows", "down", []string{"replace", "48", "lost"}},
		{"rows", "warned", []string{"watch", "91 °C"}},
		{"xid-list", "down", []string{"critical: "}},
		{"xid-list", "warned", []string{"warning: "}},
		{"other-list", "down", []string{"NVLink 0 / GPU 2: error"}},
	} {
		var got []string
		for n := range document.byID(t, tt.id).Descendants() {
			if e := (element{n}); e.attr("class") == tt.class {
				got = append(got, strings.ReplaceAll(e.text(), "GPU 2 / NVLink 0", "NVLink 0 / GPU 2"))
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("elements of #%s with the style %s = %q, want %q", tt.id, tt.class, got, tt.want)
		}
	}
	list := document.byID(t, "xid-list").all("li")
	for i, want := range []string{
		"critical: GPU 1: XID 48, Double Bit ECC Error", "warning: GPU 1: XID 63, ",
		"info: GPU 0: XID 13, Graphics Engine Exception",
	} {
		if i >= len(list) || !strings.HasPrefix(list[i].text(), want) {
			t.Errorf("XID list = %q, want entry %d to begin with %q", document.byID(t, "xid-list").text(), i, want)
		}
	}
	if got := document.byID(t, "other-list").text(); !strings.Contains(got, "NVLink: 2 of GPU 3, which is not read") {
		t.Errorf("other devices = %q, want the links of the lost GPU in one line", got)
	}
	for _, td := range document.byID(t, "rows").all("td") {
		empty := slices.Contains([]string{"–", "none", "none known"}, td.text())
		if class := td.attr("class"); empty != (class == "empty") {
			t.Errorf("cell %s with the text %q has the class %q; want the class empty only if the cell has no value",
				td.attr("data-label"), td.text(), class)
		}
	}
}

// measure is a script that records for each cell of the table whether the browser shows it.
const measure = `setInterval(() => {
  for (const td of document.querySelectorAll("#rows td")) td.dataset.shown = td.offsetParent !== null;
}, 100);`

// Empty cells are hidden on a narrow screen. Every cell is shown on a wide screen, because the columns would shift
// otherwise.
func testPhone(t *testing.T) {
	page := landing(t, time.Minute, func() string { return folder.Read(t, "testdata/trouble.prom") })
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/measure.js" {
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = io.WriteString(w, measure)
			return
		}
		page.ServeHTTP(w, r)
		if r.URL.Path == "/" {
			_, _ = io.WriteString(w, `<script src="measure.js"></script>`)
		}
	}))
	defer h.Close()
	for size, hidden := range map[string]bool{"500,900": true, "1280,900": false} {
		cells := browse(t, h.URL+"/", 3, "--window-size="+size).byID(t, "rows").all("td")
		for _, td := range cells {
			want := fmt.Sprint(!hidden || td.attr("class") != "empty")
			if got, name := td.attr("data-shown"), td.attr("data-label"); got != want {
				t.Errorf("window %s: cell %s %q: shown = %s, want %s", size, name, td.text(), got, want)
			}
		}
		if len(cells) != 4*8 {
			t.Errorf("window %s: cells = %d, want 32", size, len(cells))
		}
	}
}

// The page in testdata/hostile.prom has markup and escapes in its labels, a lost GPU and an XID. %d in it is the time
// of the collection.
func testHostile(t *testing.T) {
	const seconds = 10
	hostile := folder.Read(t, "testdata/hostile.prom")
	var requests atomic.Int64
	begin := time.Now().Unix()
	h := httptest.NewServer(landing(t, time.Second, func() string {
		return fmt.Sprintf(hostile, begin+requests.Add(1))
	}))
	defer h.Close()
	document := browse(t, h.URL+"/", seconds)

	if n := requests.Load(); n < 3 || n > seconds+1 {
		t.Errorf("requests in %d seconds = %d, want 3 to %d", seconds, n, seconds+1)
	}
	for id, want := range map[string]string{
		"banners":      "GPU 1 is not read: lost",
		"rows":         `<img src=x onerror="document.title='struck'">`,
		"xid-list":     "GPU 0: XID 79, <script>document.title='struck'</script>, 3 times",
		"missing-rows": "<b>F</b>constructor",
	} {
		if text := document.byID(t, id).text(); !strings.Contains(text, want) {
			t.Errorf("#%s = %q, want %q in it", id, text, want)
		}
	}
	row := rowsOf(t, document)["GPU 0"]
	if want := "a} 1/b\\,c=\"d\n"; row["Owners"] != want {
		t.Errorf("owners = %q, want %q", row["Owners"], want)
	}
	if row["Busy"] != "25 %" || row["Temperature"] != "–" {
		t.Errorf("busy = %q, temperature = %q, want 25 %% and –", row["Busy"], row["Temperature"])
	}
	if n := len(document.all("img", "b")); n > 0 {
		t.Errorf("elements created from label values = %d, want 0", n)
	}
	if title := document.all("title"); len(title) != 1 || strings.Contains(title[0].text(), "struck") {
		t.Errorf("title elements = %d, want 1, unchanged by the script in a label value", len(title))
	}
	lines := document.all("polyline")
	if len(lines) != 1 || len(strings.Fields(lines[0].attr("points"))) < 3 {
		t.Errorf("sparklines = %d, want 1 with at least 3 points: %v", len(lines), lines)
	}
}
