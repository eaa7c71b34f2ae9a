package dashboards

import (
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

// patience bounds every wait; it is no claim about speed.
const patience = 90 * time.Second

// troubled is a scenario that gives every panel something to show: a lost GPU, XIDs, a field that
// may not be read.
const troubled = `faults:
  - {fault: gpu-lost, at: 0s, devices: ["3"]}
  - {fault: xid, at: 0s, devices: ["1"], xids: [62, 45]}
  - {fault: absent, reason: permission, at: 0s, devices: ["2"], fields: [DCGM_FI_PROF_DRAM_ACTIVE]}
`

// exporter runs an exporter over a simulated node until the test ends, and returns the host and
// port that it serves on.
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

// eventually polls until done, and fails with what it says last.
func eventually(t *testing.T, look func() (done bool, last string)) {
	t.Helper()
	within(t, patience, look)
}

// within looks until it is done, and fails with what it saw last.
func within(t *testing.T, limit time.Duration, look func() (done bool, last string)) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for {
		done, last := look()
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not seen in %v: %s", limit, last)
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
