package integration

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	simulator "github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

func TestEveryNodeAndFileGivesAPageThatPrometheusReads(t *testing.T) {
	files, err := filepath.Glob("../../etc/*.csv")
	if err != nil || len(files) < 4 {
		t.Fatalf("shipped files: %v, %v", files, err)
	}
	for _, node := range simulator.Nodes() {
		for _, file := range files {
			t.Run(node+"/"+filepath.Base(file), func(t *testing.T) {
				e := start(t, sim(t, node, "", "--collectors", file, "--vocabulary=both")...)
				p := e.collected()
				samples := 0
				for range prom.Samples(t, []byte(p.text)) {
					samples++
				}
				if samples < 50 {
					t.Errorf("only %d samples", samples)
				}
				if err := e.stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		}
	}
}

func TestDemoNode(t *testing.T) {
	t.Parallel()
	e := start(t, sim(t, "demo", "", "--hostname-label=both")...)
	p := e.collected()
	if !strings.Contains(strings.SplitN(e.log.String(), "\n", 2)[0], "SIMULATED") {
		t.Errorf("the first line of the log does not say that it simulates:\n%s", e.log)
	}
	temperatures := p.series("DCGM_FI_DEV_GPU_TEMP", "gpu", "GPU_I_ID")
	if len(temperatures) != 8 {
		t.Errorf("device truth once: %d temperatures on 8 GPUs: %v", len(temperatures), temperatures)
	}
	memory := p.series("DCGM_FI_DEV_FB_USED", "gpu", "GPU_I_PROFILE", "GPU_I_ID")
	if _, ok := memory["6/3g.40gb/2"]; !ok {
		t.Errorf("no frame buffer of a MIG instance: %v", memory)
	}
	pods := p.series("DCGM_FI_DEV_GPU_UTIL", "gpu", "namespace", "pod", "container")
	if _, ok := pods["0/research/llm-pretrain-0/trainer"]; !ok {
		t.Errorf("no pod labels on GPU 0: %v", pods)
	}
	if _, ok := pods["5///"]; !ok {
		t.Errorf("the idle GPU has pod labels: %v", pods)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for key := range p.series("DCGM_FI_DEV_POWER_USAGE", "hostname", "Hostname", "DCGM_FI_DRIVER_VERSION") {
		if want := host + "/" + host + "/570.124.06"; key != want {
			t.Errorf("host and driver labels %q, want %q", key, want)
		}
	}
	if code, header, body := e.get("/health"); code != http.StatusOK || body != "OK" || header.Get("X-Registry-Available") != "true" {
		t.Errorf("/health: %d %q %v", code, body, header)
	}
	for _, path := range []string{"/", "/-/healthy", "/-/ready"} {
		if code, _, _ := e.get(path); code != http.StatusOK {
			t.Errorf("%s: status %d", path, code)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/-/reload"} {
		if code, _, _ := e.get(path); code != http.StatusNotFound && code != http.StatusMethodNotAllowed && code != http.StatusForbidden {
			t.Errorf("%s: status %d, want it off", path, code)
		}
	}
}

func TestLateDriver(t *testing.T) {
	t.Parallel()
	e := start(t, sim(t, "single", faults(`fault: engine-down, at: 0s, for: 2s`))...)
	p := e.scrape()
	if p.value("dcgm_exporter_collect_success") != 0 {
		t.Errorf("success without a driver:\n%s", p.text)
	}
	e.until("the driver", func(p page) bool { return len(p.series("DCGM_FI_DEV_GPU_TEMP")) == 1 })
}

func TestAutomaticChoiceDoesNotPretend(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("this machine has an NVIDIA driver: what is tested is its absence")
	}
	e := start(t, "-c", "100")
	p := e.until("a failed attempt", func(p page) bool {
		return p.series("dcgm_exporter_collect_failures_total", "stage", "reason")["open/unavailable"] > 0
	})
	if len(p.series("DCGM_FI_DEV_GPU_TEMP")) != 0 {
		t.Error("made-up values")
	}
	if code, _, _ := e.get("/-/ready"); code != http.StatusOK {
		t.Errorf("/-/ready: %d", code)
	}
	for _, word := range []string{"libdcgm.so", "libnvidia-ml.so"} {
		if !strings.Contains(e.log.String(), word) {
			t.Errorf("the log does not name %s:\n%s", word, e.log)
		}
	}
}

func TestTheBuiltInFileIsUsedAndSaid(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/etc/dcgm-exporter/default-counters.csv"); err == nil {
		t.Skip("SKIP installed: a counters file lies at the default path, and what is tested is its absence")
	}
	e := start(t, "--source=sim", "-c", "100")
	if p := e.collected(); len(p.series("DCGM_FI_DEV_GPU_TEMP")) == 0 {
		t.Error("no temperatures")
	}
	if log := e.log.String(); !strings.Contains(log, "built-in") || !strings.Contains(log, "/etc/dcgm-exporter/default-counters.csv") {
		t.Errorf("it does not say so:\n%s", log)
	}
}

func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"port in use", []string{"--source=sim", "--address", taken.Addr().String()}, []string{taken.Addr().String(), "address already in use"}},
		{"no such counters file", []string{"--source=sim", "-f", "/does/not/exist.csv"}, []string{"/does/not/exist.csv", "no such file"}},
		{"no usable counter", []string{"--source=sim", "-f", write(t, "none.csv", "# nothing\n")}, []string{"none.csv", "no usable counter"}},
		{"bad flag value", []string{"--source=dcmg"}, []string{"--source", "dcmg", "dcgm"}},
		{"unknown flag", []string{"--colectors=x"}, []string{"--colectors", "--collectors"}},
		{"unknown node", []string{"--source=sim", "--sim-node=h10"}, []string{"h10"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := app.Run(ctx, app.Process{Args: c.args, Env: noEnv, Out: io.Discard, Err: io.Discard, Start: time.Now()})
			if err == nil {
				t.Fatal("it ran")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
}
