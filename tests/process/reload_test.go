package process

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

const (
	temperatureOnly = "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n"
	withPower       = temperatureOnly + "DCGM_FI_DEV_POWER_USAGE, gauge, Power.\n"
)

const accepted = "dcgm_exporter_config_last_reload_successful"

func hasPower(p page) bool { return len(p.By("DCGM_FI_DEV_POWER_USAGE")) > 0 }

// configMap returns a file in a ConfigMap volume, and a function that updates it. The volume has a symbolic link to a
// folder, and an update renames a new link over the old one.
func configMap(t *testing.T, name, content string) (path string, put func(content string)) {
	t.Helper()
	dir, version := t.TempDir(), 0
	put = func(content string) {
		t.Helper()
		version++
		to, next := fmt.Sprint("..v", version), filepath.Join(dir, "..data_tmp")
		if err := errors.Join(os.Rename(filepath.Dir(write(t, name, content)), filepath.Join(dir, to)),
			os.Symlink(to, next), os.Rename(next, filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	put(content)
	path = filepath.Join(dir, name)
	if err := os.Symlink("..data/"+name, path); err != nil {
		t.Fatal(err)
	}
	return path, put
}

// A broken file changes nothing, and is not read again before it changes. A valid file takes effect. Every page has the
// temperatures, which both valid files select.
func TestReload(t *testing.T) {
	t.Parallel()
	for name, reload := range map[string]func(r *running) (refused bool){
		"SIGHUP": func(r *running) bool { r.signal(syscall.SIGHUP); return false },
		"POST": func(r *running) bool {
			code, _ := r.do(http.MethodPost, "/-/reload")
			return code != http.StatusOK
		},
		"file change":      func(*running) bool { return false },
		"ConfigMap change": func(*running) bool { return false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := write(t, "counters.csv", temperatureOnly)
			put := func(content string) { replace(t, file, content) }
			if name == "ConfigMap change" {
				file, put = configMap(t, "counters.csv", temperatureOnly)
			}
			// On a busy machine, samples of a shorter interval would be stale.
			r := simulate(t, "h100x8", nil, "-f", file, "--web-enable-lifecycle", "-c", "500")
			hash := r.collected().Value("dcgm_exporter_config_hash")
			sees := func(what string, wanted func(page) bool) page {
				t.Helper()
				return r.sees(what, func(p page) bool {
					if len(p.By("DCGM_FI_DEV_GPU_TEMP")) == 0 {
						t.Error("page without temperatures during a reload, want them on every page")
					}
					return wanted(p)
				})
			}
			put("this is no counters file\n")
			if refused := reload(r); name == "POST" && !refused {
				t.Error("broken file was accepted, want it rejected")
			}
			p := sees("the refused file", func(p page) bool { return p.Value(accepted) == 0 })
			if got := p.Value("dcgm_exporter_config_hash"); hasPower(p) || got != hash {
				t.Errorf("rejected file: power series: %t, hash = %v; want false and %v", hasPower(p), got, hash)
			}
			if name == "file change" {
				reads := func() int { return strings.Count(r.log.String(), "this is no counters file") }
				const last = "dcgm_exporter_collect_last_success_timestamp_seconds"
				before, end := reads(), p.Value(last)+3
				sees("cycles for three seconds", func(p page) bool { return p.Value(last) > end })
				if n := reads(); before == 0 || n != before {
					t.Errorf("broken file was read %d times, then %d more times; want 0 more", before, n-before)
				}
			}
			put(withPower)
			if reload(r) {
				t.Error("valid file was rejected, want it accepted")
			}
			sees("the reload", func(p page) bool {
				return hasPower(p) && p.Value(accepted) == 1 && p.Value("dcgm_exporter_config_hash") != hash
			})

			// after a reload without changes, the log says what needs a restart
			r.signal(syscall.SIGHUP)
			r.wait("a log line that nothing changed", func() bool {
				return r.logged("Restart to apply changed flags or environment variables")
			})
		})
	}
}

// Counters can come from a pipe that is written once (-f <(…)). A reload keeps them, and does not read the pipe again.
func TestCountersFromAPipe(t *testing.T) {
	t.Parallel()
	const args = ` --address=127.0.0.1:0 --source=sim --web-enable-lifecycle -c 500 -f <(printf '`
	r := launch(t, exec.Command("bash", "-c", "exec "+program+args+withPower+"')")).listens()
	r.sees("power", hasPower)
	if r.reloads(); !hasPower(prom.Parse(t, r.scrape())) {
		t.Error("page after a reload has no power series")
	}
}

// If a FIFO replaces the counters file, it is rejected. It does not block the reload of a regular file later.
func TestFIFODoesNotBlockReload(t *testing.T) {
	t.Parallel()
	file := write(t, "counters.csv", temperatureOnly)
	r := simulate(t, "single", nil, "-f", file)
	r.collected()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	r.until("dcgm_exporter_config_last_reload_successful 0", "DCGM_FI_DEV_GPU_TEMP{")
	if !r.logged("not a regular file") {
		t.Error("log does not contain \"not a regular file\" after a pipe replaced the counters file")
	}
	replace(t, file, withPower)
	r.sees("a page with the next file's series", hasPower)
}

// A reload takes effect as a whole. If the driver rejects the new session, a new password takes effect later, together
// with the session.
func TestReloadIsAtomic(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, node()...)
	path, request := changingFile(t)
	web := write(t, "web.yml", "http_server_config: {http2: false}\n")
	r := start(t, env, "-f", path, "--web-config-file", web)
	r.until(everyGPU)
	engine.Add("fail dcgmWatchFields -7")
	replace(t, web, `basic_auth_users: {me: "$2y$10$abcdefghijklmnopqrstuuAaBbCcDdEeFfGgHhIiJjKkLlMmNnOoPp"}`+"\n")
	request("DCGM_FI_DEV_POWER_USAGE")
	r.until("dcgm_exporter_config_last_reload_successful 0", everyGPU)
	engine.Remove("fail dcgmWatchFields -7")
	r.wait("the password to be required", func() bool {
		code, _ := r.get("/metrics")
		return code == http.StatusUnauthorized
	})
}

// Health state survives a reload. Losing a link that was up, or an IMEX daemon that was ready, is still a finding
// afterward. Findings with a code in --health-ignore are informational.
func TestHealthStateOutlivesReload(t *testing.T) {
	t.Parallel()
	const (
		counters = "DCGM_EXP_NODE_HEALTH_STATUS, gauge, Health.\nDCGM_EXP_GPU_HEALTH_STATUS, gauge, Health.\n" +
			"DCGM_FI_IMEX_DAEMON_STATUS, gauge, Daemon.\n"
		ready  = "value any:* 1503 int 5"
		up     = "link gpu:8:0 state=up"
		none   = `,health_error_severity="NONE",health_error_category="NONE"} 0`
		passes = `health_watch="NVLINK",health_error_code="DCGM_FR_OK"` + none
		daemon = `health_watch="IMEX",health_error_code="DCGM_FR_IMEX_UNHEALTHY",` +
			`health_error_severity="ISOLATE",health_error_category="SOFTWARE_OTHER"} 20`
		link = `health_watch="NVLINK",health_error_code="DCGM_FR_NVLINK_DOWN",` +
			`health_error_severity="TRIAGE",health_error_category="HARDWARE_NVLINK"} 20`
		ignored = `health_watch="MEM",health_error_code="DCGM_FR_FAULTY_MEMORY",health_error_severity="ISOLATE",` +
			`health_error_category="HARDWARE_MEMORY",treatment="informational"} 20`
	)
	engine, env := fakedcgm.NewFor(t, append(node(),
		"gpu 8 uuid=GPU-8 name=NVIDIA+A100-PCIE-40GB bus=00000000:2B:00.0 index=8 minor=8 links=1",
		"value any:* 67 int 0", "value any:* 173 int 7", "value any:* 1502 text UP", ready, up)...)
	file := write(t, "counters.csv", counters)
	r := start(t, env, remote, "--web-enable-lifecycle", "-f", file, "--health-ignore=FAULTY_MEMORY")
	r.until(`DCGM_FI_IMEX_DAEMON_STATUS{gpu="8"`, `health_watch="IMEX",health_error_code="DCGM_FR_OK"`, passes)
	engine.Replace(ready, "value any:* 1503 int -3")
	engine.Replace(up, "link gpu:8:0 state=down")
	engine.Add("value any:* 1502 text UNAVAILABLE", "incident none:0 0x2000 20 122", "incident gpu:8 0x2 20 14",
		"incident gpu:8 0x10 20 52")
	r.until("} -3\n", daemon, link, ignored)
	replace(t, file, counters+withPower)
	r.reloads()
	page := r.until("DCGM_FI_DEV_POWER_USAGE{")
	if daemon, link := strings.Contains(page, daemon), strings.Contains(page, link); !daemon || !link {
		t.Errorf("findings after the reload: IMEX daemon: %t, link: %t; want both:\n%s", daemon, link, page)
	}
}
