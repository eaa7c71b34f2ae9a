package dashboards

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/browser"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// maxPicture is how large a picture may be in the repository.
const maxPicture = 150_000

func picture(file string) string {
	return filepath.Join(root, "docs", "images", "dashboard-"+strings.TrimSuffix(file, ".json")+".png")
}

// The docs show a picture of each dashboard.
func TestPicturesAreThere(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "dashboards.md"))
	if err != nil {
		t.Fatal(err)
	}
	for file := range dashboards(t) {
		path := picture(file)
		info, err := os.Stat(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if info.Size() > maxPicture {
			t.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxPicture)
		}
		if !strings.Contains(string(page), "images/"+filepath.Base(path)) {
			t.Errorf("docs/dashboards.md does not show %s", filepath.Base(path))
		}
	}
}

// A mark is an annotation in a graph.
type mark struct {
	Time  float64 `json:"time"`
	Color string  `json:"color"`
}

// draw draws a dashboard in a Chromium as it looks at the end of the play, holds that nothing is
// cut off, and writes the picture with -update.
func (w *world) draw(t *testing.T, file string, values map[string]string, span, step time.Duration) {
	t.Helper()
	w.t = t
	text, err := os.ReadFile(filepath.Join(root, "grafana", file))
	if err != nil {
		t.Fatal(err)
	}
	d := dashboards(t)[file]
	from := w.end.Add(-span)
	answers := map[int][]json.RawMessage{}
	for _, p := range d.everyPanel() {
		for _, q := range p.Targets {
			expr := w.filledFor(q.Expr, values)
			answer := []point{}
			if q.Instant {
				answer = append(answer, w.instant(expr, w.asked())...)
			} else {
				answer = append(answer, w.ranged(expr, from, step)...)
			}
			answers[p.ID] = append(answers[p.ID], lowered(t, answer))
		}
	}
	marks := []mark{}
	for _, a := range d.Annotations.List {
		for _, x := range w.ranged(w.filledFor(a.Expr, values), from, time.Minute) {
			at, _ := x.Values[0][0].(float64)
			marks = append(marks, mark{at, a.IconColor})
		}
	}
	variables := [][2]string{}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		shown := "All"
		if value := values[v.Name]; value != "" {
			shown = value
			if name := w.host(value); name != "" {
				shown = name
			}
		}
		variables = append(variables, [2]string{v.Label, shown})
	}
	data, err := json.Marshal(map[string]any{
		"dashboard": json.RawMessage(text), "answers": answers, "annotations": marks, "variables": variables,
		"from": from.Unix(), "to": w.end.Unix(), "step": step.Seconds(),
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir("renderer")))
	mux.HandleFunc("/data.json", func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(data) })
	server := httptest.NewServer(mux)
	defer server.Close()

	b, err := browser.Start(t.Context(), 1280, 900)
	if errors.Is(err, browser.ErrAbsent) {
		material.Skip(t, "chromium-absent", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Open(server.URL + "/page.html"); err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(`document.documentElement.dataset.drawn === "yes"`, patience); err != nil {
		t.Fatalf("%s is not drawn: %v; complaints: %q", file, err, b.Complaints())
	}
	var height string
	if err := b.Evaluate(`document.documentElement.dataset.height`, &height); err != nil {
		t.Fatal(err)
	}
	// What a person would see as broken: titles, names and figures that are cut off.
	for what, selector := range map[string]string{"title": "h2", "column": "th", "cell": "td", "legend": ".legend b", "figure": ".value"} {
		var cut []string
		err := b.Evaluate(fmt.Sprintf(`[...document.querySelectorAll(%q)].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.closest("section").querySelector("h2").textContent + ": " + e.textContent)`, selector), &cut)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cut {
			t.Errorf("%s: a %s is cut off: %s", file, what, c)
		}
	}
	if c := b.Complaints(); len(c) > 0 {
		t.Errorf("%s: %q", file, c)
	}
	if !*update {
		return
	}
	pixels, err := strconv.Atoi(height)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Resize(1280, pixels+6); err != nil {
		t.Fatal(err)
	}
	png, err := b.Picture()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(picture(file), small(t, png), 0o644); err != nil {
		t.Fatal(err)
	}
}

// lowered writes an answer with the keys that Prometheus has.
func lowered(t *testing.T, answer []point) json.RawMessage {
	t.Helper()
	type series struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"`
		Values [][2]any          `json:"values"`
	}
	all := []series{}
	for _, x := range answer {
		all = append(all, series(x))
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
