package dashboards

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	running "github.com/gpu-telemetry/dcgm-exporter/tests/fake/exporter"
)

// patience bounds every wait; it is no claim about speed.
const patience = 90 * time.Second

// troubled is a scenario that gives every panel something to show: a lost GPU,
// XIDs, a field that may not be read.
const troubled = `faults:
  - {fault: gpu-lost, at: 0s, devices: ["3"]}
  - {fault: xid, at: 0s, devices: ["1"], xids: [62, 45]}
  - {fault: no-permission, at: 0s, devices: ["2"], fields: [DCGM_FI_PROF_DRAM_ACTIVE]}
`

// exporter runs an exporter over a simulated node until the test ends, and
// returns the host and port that it serves on.
func exporter(t *testing.T, scenario string, args ...string) string {
	t.Helper()
	args = append([]string{
		"--source=sim", "--collect-interval=1s",
		"--collectors=" + filepath.Join(root, "etc", "default-counters.csv"),
		"--sim-scenario=" + file(t, "scenario.yaml", scenario),
	}, args...)
	return running.Start(t, patience, app.Process{Args: args}).Address
}

// file writes a file of the test's own and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := (&http.Client{Timeout: patience}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: status %d, %v\n%s", url, resp.StatusCode, err, body)
	}
	return string(body)
}

// eventually asks until done, and fails with what it says last.
func eventually(t *testing.T, ask func() (done bool, last string)) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		done, last := ask()
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not seen in %v: %s", patience, last)
		}
	}
}

// page returns the families of an exporter's page once wanted is on it.
func page(t *testing.T, address, wanted string) map[string]*dto.MetricFamily {
	t.Helper()
	var text string
	eventually(t, func() (bool, string) {
		text = get(t, "http://"+address+"/metrics")
		return strings.Contains(text, wanted), "no " + wanted + " on\n" + text
	})
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// findPrometheus returns the path of a Prometheus, or why there is none.
func findPrometheus() (path string, reason error) {
	if path, err := exec.LookPath("prometheus"); err == nil {
		return path, nil
	}
	path, err := filepath.Abs(filepath.Join(root, ".cache", "prometheus", "usr", "bin", "prometheus"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", errNoPrometheus
	}
	return path, nil
}

var errNoPrometheus = errors.New("prometheus unavailable: not in PATH and not fetched; run tests/dashboards/prometheus.sh")

// A prometheus is a running one.
type prometheus struct {
	t   *testing.T
	url string
}

// startPrometheus runs a Prometheus with a configuration until the test ends.
// It skips the test where there is none, which on CI is a failure.
func startPrometheus(t *testing.T, configuration string) *prometheus {
	t.Helper()
	path, reason := findPrometheus()
	if reason != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
	dir := t.TempDir()
	port := freePort(t)
	log := &running.Log{}
	cmd := exec.Command(path,
		"--config.file="+file(t, "prometheus.yml", configuration), "--storage.tsdb.path="+dir,
		"--web.listen-address=127.0.0.1:"+port, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is ended by a signal
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("the log of Prometheus:\n%s", log)
		}
	})
	p := &prometheus{t, "http://127.0.0.1:" + port}
	eventually(t, func() (bool, string) {
		select {
		case <-ended:
			t.Fatalf("prometheus ended:\n%s", log)
		default:
		}
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false, err.Error()
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, resp.Status
	})
	return p
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// series are the label sets of an answer.
type series []map[string]string

// ask asks a query as a panel does: at this moment, or over the last minute.
// The error is what Prometheus has against the query.
func (p *prometheus) ask(expr string, instant bool) (series, error) {
	p.t.Helper()
	now := time.Now()
	at := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	path, v := "/api/v1/query", url.Values{"query": {expr}}
	if !instant {
		path = "/api/v1/query_range"
		v.Set("start", at(now.Add(-time.Minute)))
		v.Set("end", at(now))
		v.Set("step", "1")
	}
	resp, err := http.Get(p.url + path + "?" + v.Encode())
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		p.t.Fatal(err)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", resp.Status, answer.Error)
	}
	var all series
	for _, r := range answer.Data.Result {
		all = append(all, r.Metric)
	}
	return all, nil
}
