package integration

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	simulator "github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

func TestEveryNodeAndFileGivesAPageThatPrometheusReads(t *testing.T) {
	files, err := filepath.Glob("../../etc/*.csv")
	if err != nil || len(files) != 4 {
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

func TestGzip(t *testing.T) {
	t.Parallel()
	e := start(t, sim(t, "h100x8", "")...)
	e.collected()
	req, err := http.NewRequest(http.MethodGet, e.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("Content-Encoding %q", got)
	}
	unzipped, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(unzipped)
	if err != nil || !strings.Contains(string(body), "DCGM_FI_DEV_GPU_TEMP{") {
		t.Errorf("unzipped page: %v\n%s", err, body)
	}
}

// withoutGPU returns the GPU series of a page that are not of the given GPU and not about its
// health.
func withoutGPU(p page, gpuID string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(p.text) {
		if strings.HasPrefix(line, "DCGM_") && !strings.Contains(line, `gpu="`+gpuID+`"`) {
			name, _, _ := strings.Cut(line, "} ")
			out[name] = true
		}
	}
	return out
}

func TestOneLostGPUAmongEight(t *testing.T) {
	t.Parallel()
	e := start(t, sim(t, "h100x8", faults(`fault: gpu-lost, at: 3s, for: 3s, devices: ["3"]`))...)
	before := e.collected()
	lost := e.until("GPU 3 down", func(p page) bool {
		_, down := p.series("dcgm_exporter_entity_up", "gpu", "reason")["3/lost"]
		return down
	})
	if diff := cmp.Diff(withoutGPU(before, "3"), withoutGPU(lost, "3")); diff != "" {
		t.Errorf("the other GPUs' series changed (-before +lost):\n%s", diff)
	}
	up := lost.series("dcgm_exporter_entity_up", "gpu")
	if up["3"] != 0 || up["2"] != 1 || len(up) != 8 {
		t.Errorf("entity_up: %v", up)
	}
	if _, ok := lost.series("DCGM_FI_DEV_GPU_TEMP", "gpu")["3"]; ok {
		t.Error("the lost GPU has a temperature")
	}
	e.until("GPU 3 back", func(p page) bool {
		_, ok := p.series("DCGM_FI_DEV_GPU_TEMP", "gpu")["3"]
		return ok && p.series("dcgm_exporter_entity_up", "gpu")["3"] == 1
	})
}

func TestEngineDownAndBack(t *testing.T) {
	t.Parallel()
	e := start(t, sim(t, "single", faults(`fault: engine-down, at: 3s, for: 2s`))...)
	e.collected()
	down := e.until("the engine down", func(p page) bool { return p.value("dcgm_exporter_collect_success") == 0 })
	if len(down.series("DCGM_FI_DEV_GPU_TEMP")) != 0 {
		t.Error("values without an engine")
	}
	if code, _, _ := e.get("/health"); code != http.StatusOK {
		t.Errorf("/health: %d: a lost engine is no reason to restart the process", code)
	}
	e.collected()
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

func TestRepartition(t *testing.T) {
	t.Parallel()
	e := start(t, sim(t, "a100-mig", faults(`fault: repartition, at: 3s, devices: ["0"], mig: ["7g.40gb"]`))...)
	e.collected()
	empty := false
	after := e.until("the new layout", func(p page) bool {
		empty = empty || len(p.series("DCGM_FI_DEV_GPU_TEMP")) == 0
		for key := range p.series("DCGM_FI_DEV_FB_USED", "gpu", "GPU_I_PROFILE") {
			if key == "0/7g.40gb" {
				return true
			}
		}
		return false
	})
	if empty {
		t.Error("a page had no GPU series in between")
	}
	if n := after.series("dcgm_exporter_sessions_total", "cause")["topology"]; n != 1 {
		t.Errorf("%v sessions because of the topology", n)
	}
}

func TestHangingDriver(t *testing.T) {
	t.Parallel()
	e := start(t, sim(t, "single", faults(`fault: hang, at: 3s, call: read, ignore-cancel: true`), "--collect-hang-limit=3s")...)
	e.collected()
	// The driver never returns, the page does.
	hanging := e.until("the hang", func(p page) bool {
		return p.series("dcgm_exporter_collect_failures_total", "stage", "reason")["read/timeout"] > 0
	})
	if len(hanging.series("DCGM_FI_DEV_GPU_TEMP")) != 0 {
		t.Error("values from a driver that hangs")
	}
	select {
	case err := <-e.result:
		if !errors.Is(err, gpu.ErrWedged) {
			t.Errorf("Run: %v, want gpu.ErrWedged", err)
		}
	case <-time.After(patience):
		t.Fatal("Run goes on with a wedged driver")
	}
}

func TestScrapersInCrowds(t *testing.T) {
	t.Parallel()
	e := start(t, sim(t, "mig8x7", "", "--web-max-requests=0")...)
	e.collected()
	slow, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close() // sends a request, and never reads
	if _, err := io.WriteString(slow, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 5 {
				resp, err := http.Get(e.url + "/metrics")
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK || !strings.HasSuffix(string(body), "\n") {
					t.Errorf("status %d, %d bytes, %v", resp.StatusCode, len(body), err)
				}
			}
		})
	}
	wg.Wait()
}

func TestStopsUnderLoad(t *testing.T) {
	t.Parallel()
	e := start(t, sim(t, "h100x8", "")...)
	e.collected()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if resp, err := http.Get(e.url + "/metrics"); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body) // it may well be cut off
					resp.Body.Close()
				}
			}
		})
	}
	if err := e.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	cancel()
	wg.Wait()
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
