package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

const (
	temperatureOnly = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n"
	withPower       = temperatureOnly + "DCGM_FI_DEV_POWER_USAGE, gauge, Power.\n"
)

// watchTemperature scrapes until stopped and counts the pages without the one series that every
// file of these tests names.
func watchTemperature(t *testing.T, e *exporter) (missing func() int64) {
	var gaps atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if len(e.scrape().series("DCGM_FI_DEV_GPU_TEMP")) == 0 {
				gaps.Add(1)
			}
		}
	}()
	return func() int64 { close(stop); <-done; return gaps.Load() }
}

func hasPower(p page) bool { return len(p.series("DCGM_FI_DEV_POWER_USAGE")) > 0 }

func TestReload(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*testing.T, *exporter, bool){
		"SIGHUP": func(_ *testing.T, e *exporter, _ bool) { e.hangup <- struct{}{} },
		"POST": func(t *testing.T, e *exporter, good bool) {
			resp, err := http.Post(e.url+"/-/reload", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if good != (resp.StatusCode == http.StatusOK) {
				t.Errorf("POST /-/reload: status %d", resp.StatusCode)
			}
		},
		"file change": func(*testing.T, *exporter, bool) {},
	}
	for name, reload := range ways {
		t.Run(name, func(t *testing.T) {
			file := write(t, "counters.csv", temperatureOnly)
			// Samples of three intervals ago are stale: on a busy machine those of 100 ms would be.
			e := start(t, sim(t, "h100x8", "", "-f", file, "--web-enable-lifecycle", "-c", "500")...)
			first := e.collected()
			hash := first.value("dcgm_exporter_config_hash")
			missing := watchTemperature(t, e)

			if err := os.WriteFile(file, []byte("this is no counters file\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			reload(t, e, false)
			refused := e.until("the refused file", func(p page) bool {
				return p.value("dcgm_exporter_config_last_reload_successful") == 0
			})
			if hasPower(refused) || refused.value("dcgm_exporter_config_hash") != hash {
				t.Error("a broken file changed something")
			}

			if err := os.WriteFile(file, []byte(withPower), 0o644); err != nil {
				t.Fatal(err)
			}
			reload(t, e, true)
			e.until("the reload", func(p page) bool {
				return hasPower(p) && p.value("dcgm_exporter_config_last_reload_successful") == 1 &&
					p.value("dcgm_exporter_config_hash") != hash
			})
			if n := missing(); n != 0 {
				t.Errorf("%d pages without the series in between", n)
			}
		})
	}
}

// A ConfigMap volume is a link to a folder that is swapped by renaming.
func TestConfigMapSwap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(version, content string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, version, "counters.csv"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	put("..v1", temperatureOnly)
	file := filepath.Join(dir, "counters.csv")
	if err := os.Symlink(filepath.Join("..data", "counters.csv"), file); err != nil {
		t.Fatal(err)
	}
	e := start(t, sim(t, "single", "", "-f", file)...)
	if hasPower(e.collected()) {
		t.Fatal("power before the swap")
	}
	put("..v2", withPower)
	e.until("the swapped file", hasPower)
	put("..v3", temperatureOnly)
	e.until("the file swapped back", func(p page) bool { return !hasPower(p) })
}

// A FIFO that takes the place of the counters file is refused, and holds no later reload.
func TestAPipeHoldsNoReload(t *testing.T) {
	t.Parallel()
	file := write(t, "counters.csv", temperatureOnly)
	e := start(t, sim(t, "single", "", "-f", file)...)
	e.collected()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := e.until("the refused pipe", func(p page) bool {
		return p.value("dcgm_exporter_config_last_reload_successful") == 0
	})
	if len(refused.series("DCGM_FI_DEV_GPU_TEMP")) == 0 || !strings.Contains(e.log.String(), "not a regular file") {
		t.Errorf("the log:\n%s", e.log.String())
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(withPower), 0o600); err != nil {
		t.Fatal(err)
	}
	e.until("the file after it", hasPower)
}

// The counters may come from a process that writes them once (-f <(…)): they are read once, and stay
// at a reload.
func TestCountersFromAPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString(withPower); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	e := start(t, sim(t, "h100x8", "", "-f", fmt.Sprintf("/dev/fd/%d", r.Fd()), "--web-enable-lifecycle", "-c", "500")...)
	if p := e.collected(); !hasPower(p) {
		t.Error("no power")
	}
	resp, err := http.Post(e.url+"/-/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !hasPower(e.scrape()) {
		t.Errorf("after a reload: status %d, power: %v", resp.StatusCode, hasPower(e.scrape()))
	}
}
