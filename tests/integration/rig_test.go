package integration

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	running "github.com/gpu-telemetry/dcgm-exporter/tests/fake/exporter"
)

// patience bounds every wait. It is no claim about speed: a machine that needs longer has not
// failed a benchmark, it is stuck.
const patience = 60 * time.Second

// atOnce is how many of these tests run at once. They wait for cycles nearly all of the time, so
// this is no matter of how many cores there are.
const atOnce = "8"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// An exporter is a running one.
type exporter struct {
	t      *testing.T
	url    string
	hangup chan struct{}

	cancel func()
	result <-chan error
	log    *running.Log
}

func noEnv(string) (string, bool) { return "", false }

// start runs the exporter with args and waits until it listens.
func start(t *testing.T, args ...string) *exporter {
	t.Helper()
	return startIn(t, nil, args...)
}

// startIn is start with an environment.
func startIn(t *testing.T, env map[string]string, args ...string) *exporter {
	t.Helper()
	e := &exporter{t: t, hangup: make(chan struct{})}
	r := running.Start(t, patience, app.Process{
		Args:   args,
		Env:    func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Hangup: e.hangup,
	})
	e.url, e.cancel, e.result, e.log = "http://"+r.Address, r.Cancel, r.Result, r.Log
	return e
}

// stop ends the exporter and returns what Run returned.
func (e *exporter) stop() error {
	e.t.Helper()
	e.cancel()
	select {
	case err := <-e.result:
		return err
	case <-time.After(patience):
		e.t.Fatal("Run does not return")
		return nil
	}
}

// get returns status, headers and body of a path.
func (e *exporter) get(path string) (int, http.Header, string) {
	e.t.Helper()
	client := http.Client{Timeout: patience}
	resp, err := client.Get(e.url + path)
	if err != nil {
		e.t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatalf("GET %s: %v", path, err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// A page is a parsed scrape.
type page struct {
	text     string
	families map[string]*dto.MetricFamily
}

func (e *exporter) scrape() page {
	e.t.Helper()
	code, _, body := e.get("/metrics")
	if code != http.StatusOK {
		e.t.Fatalf("GET /metrics: status %d", code)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		e.t.Fatalf("the page does not parse: %v\n%s", err, body)
	}
	return page{text: body, families: families}
}

// series returns the values of a family by the values of the given labels, joined by slashes.
func (p page) series(family string, labels ...string) map[string]float64 {
	out := map[string]float64{}
	for _, m := range p.families[family].GetMetric() {
		key := make([]string, len(labels))
		for i, name := range labels {
			for _, l := range m.Label {
				if l.GetName() == name {
					key[i] = l.GetValue()
				}
			}
		}
		out[strings.Join(key, "/")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
	}
	return out
}

// value returns the value of a family's only series, or -1.
func (p page) value(family string) float64 {
	for _, v := range p.series(family) {
		return v
	}
	return -1
}

// until scrapes until the page is as wanted.
func (e *exporter) until(what string, wanted func(page) bool) page {
	e.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond) // half of an interval
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		p := e.scrape()
		if wanted(p) {
			return p
		}
		select {
		case <-tick.C:
		case <-deadline:
			e.t.Fatalf("not seen: %s; last page:\n%s", what, p.text)
		}
	}
}

// collected waits for the first page with data.
func (e *exporter) collected() page {
	e.t.Helper()
	return e.until("a first cycle", func(p page) bool { return p.value("dcgm_exporter_collect_success") == 1 })
}

// write puts a file into a temporary folder and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// sim returns the arguments of a simulated node that is read every 100 ms, with a scenario if that
// is not empty.
func sim(t *testing.T, node, scenario string, args ...string) []string {
	t.Helper()
	all := []string{"--source=sim", "--sim-node=" + node, "-c", "100", "--collectors", "../../etc/default-counters.csv"}
	if scenario != "" {
		all = append(all, "--sim-scenario="+write(t, "scenario.yaml", scenario))
	}
	return append(all, args...)
}

func faults(lines ...string) string {
	return fmt.Sprintf("faults:\n  - {%s}\n", strings.Join(lines, "}\n  - {"))
}
