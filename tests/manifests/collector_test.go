package manifests

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	running "github.com/gpu-telemetry/dcgm-exporter/tests/fake/exporter"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// A reading is a value of a GPU at the time of a scrape.
type reading struct{ metric, uuid, at string }

// TestTheCollectorRenames runs the OpenTelemetry collector with the shipped file over a simulated
// node: each measurement comes out under its name of the conventions too, in their unit, with the
// GPU's identity.
func TestTheCollectorRenames(t *testing.T) {
	path, err := exec.Command("./scrapers.sh", "otelcol").Output()
	if err != nil {
		material.Skip(t, "otelcol-absent", fmt.Errorf("make scrapers builds it: %w", err))
	}
	text, err := os.ReadFile(integrations + "otel-collector.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e := running.Start(t, patience, app.Process{Args: []string{"--source=sim", "--collect-interval=1s"}})
	conf := string(text)
	for was, is := range map[string]string{
		"localhost:9400": e.Address, "scrape_interval: 30s": "scrape_interval: 1s", "exporters: [otlp]": "exporters: [debug]",
		"  otlp:\n    endpoint: otlp.example:4317\n": "  debug: {verbosity: detailed}\n",
	} {
		if !strings.Contains(conf, was) {
			t.Fatalf("the file has no %q", was)
		}
		conf = strings.ReplaceAll(conf, was, is)
	}
	file := filepath.Join(t.TempDir(), "otel.yaml")
	// No port for metrics of the collector's own.
	if err := os.WriteFile(file, []byte(conf+"  telemetry: {metrics: {level: none}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := &running.Log{}
	collector := exec.Command(strings.TrimSpace(string(path)), "--config="+file)
	collector.Stdout, collector.Stderr = out, out
	if err := collector.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = collector.Wait() // it is ended by a signal
		close(ended)
	}()
	stop := func() {
		_ = collector.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
	}
	defer stop()

	const last = "-> Name: hw.gpu.utilization"
	tick, deadline := time.NewTicker(100*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for strings.Count(out.String(), last) < 2 { // a first scrape may be of a page without GPUs
		select {
		case <-ended:
			t.Fatalf("the collector ended:\n%s", out)
		case <-deadline:
			t.Fatalf("no %q twice in %v:\n%s", last, patience, out)
		case <-tick.C:
		}
	}
	stop()

	values, units := readings(t, out.String())
	for renamed, tt := range map[string]struct {
		name, unit string
		factor     float64
	}{
		"hw.gpu.utilization":  {"DCGM_FI_DEV_GPU_UTIL", "1", 0.01},
		"hw.gpu.memory.usage": {"DCGM_FI_DEV_FB_USED", "By", 1 << 20},
		"hw.power":            {"DCGM_FI_DEV_POWER_USAGE", "W", 1},
		"hw.temperature":      {"DCGM_FI_DEV_GPU_TEMP", "Cel", 1},
		"hw.energy":           {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "J", 0.001},
	} {
		if units[renamed] != tt.unit {
			t.Errorf("%s has the unit %q, want %q", renamed, units[renamed], tt.unit)
		}
		gpus := map[string]bool{}
		for at, v := range values {
			if at.metric != renamed {
				continue
			}
			was, ok := values[reading{tt.name, at.uuid, at.at}]
			if want := was * tt.factor; !ok || math.Abs(v-want) > 1e-6*max(1, math.Abs(want)) {
				t.Errorf("%s of %s is %v, want %v (%s: %v, there: %v)", renamed, at.uuid, v, want, tt.name, was, ok)
			}
			gpus[at.uuid] = true
		}
		if len(gpus) < 6 {
			t.Errorf("%s of %d GPUs", renamed, len(gpus))
		}
	}
}

// readings reads what the collector's debug exporter prints: the values of whole GPUs and the units
// of metrics.
func readings(t *testing.T, text string) (values map[reading]float64, units map[string]string) {
	t.Helper()
	values, units = map[reading]float64{}, map[string]string{}
	var name, uuid, id, at string
	instance := false
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "-> "), ": ")
		value = strings.TrimSuffix(strings.TrimPrefix(value, "Str("), ")")
		switch {
		case key == "Name":
			name = value
		case key == "Unit":
			units[name] = value
		case strings.HasPrefix(key, "NumberDataPoints"):
			uuid, id, instance = "", "", false
		case key == "UUID":
			uuid = value
		case key == "hw.id":
			id = value
		case key == "GPU_I_ID":
			instance = true
		case key == "Timestamp":
			at = value
		case key == "Value" && uuid != "" && !instance:
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if strings.HasPrefix(name, "hw.") && id != uuid {
				t.Errorf("%s of %s has hw.id %q", name, uuid, id)
			}
			values[reading{name, uuid, at}] = v
		}
	}
	return values, units
}
