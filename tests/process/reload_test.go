package process

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/selfsigned"
	"github.com/gpu-telemetry/dcgm-exporter/tests/reference"
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
			// Samples of a shorter interval would be stale on a busy machine.
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
			isFIFO := name == "SIGHUP" // a FIFO in place of the file is rejected too, and blocks no later reload
			if !isFIFO {
				put("this is no counters file\n")
			} else if err := errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)); err != nil {
				t.Fatal(err)
			}
			if refused := reload(r); name == "POST" && !refused {
				t.Error("broken file was accepted, want it rejected")
			}
			p := sees("the refused file", func(p page) bool { return p.Value(accepted) == 0 })
			if isFIFO && !r.logged("not a regular file") {
				t.Error("log does not contain \"not a regular file\" after a FIFO replaced the counters file")
			}
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

// TestNVIDIAManifestsStart starts the exporter with the arguments, variables and files of each rendering of NVIDIA's
// chart, and of the operator's DaemonSet. Only what depends on the container is changed: the image's folder, the port
// and the source.
func TestNVIDIAManifestsStart(t *testing.T) {
	t.Parallel()
	all := append(reference.Chart(t), reference.Operator(t))
	if len(all) < 10 {
		t.Fatalf("found %d workloads, want at least 10", len(all))
	}
	// the operator adds these if the ClusterPolicy sets the corresponding fields
	filled := all[len(all)-1]
	filled.Name += " with its settings"
	filled.Env = map[string]string{
		"DCGM_REMOTE_HOSTENGINE_INFO": "nvidia-dcgm:5555", "DCGM_HPC_JOB_MAPPING_DIR": "/run/nvidia/dcgm-job-mapping",
		"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS": "true", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID": "true",
	}
	maps.Copy(filled.Env, all[len(all)-1].Env)
	filled.Env["DCGM_EXPORTER_COLLECTORS"] = "/etc/dcgm-exporter/dcgm-metrics.csv"
	filled.Files = map[string]string{
		"/etc/dcgm-exporter/dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).",
	}
	for _, w := range append(all, filled) {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			args, env := inFolder(t, w)
			r := serve(t, env, append(args, "--source=sim", "--sim-node=h100x8")...)
			client := &http.Client{Timeout: patience, Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the certificate is created by this test
			}}
			web, want := w.Files["/etc/dcgm-exporter/web-config.yaml"], http.StatusOK
			if strings.Contains(web, "tls_server_config") {
				r.url = strings.Replace(r.url, "http:", "https:", 1)
			}
			if strings.Contains(web, "basic_auth_users") {
				want = http.StatusUnauthorized
			}
			resp, err := client.Get(r.url + "/health")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("GET /health: status = %d, want %d", resp.StatusCode, want)
			}
			r.stops()
		})
	}
}

// inFolder writes the files of a workload and of the exporter's image to a folder of this machine. It returns the
// arguments and variables of the workload, with paths in that folder.
func inFolder(t *testing.T, w reference.Workload) (args, env []string) {
	t.Helper()
	dir := t.TempDir()
	const inImage = "/etc/dcgm-exporter"
	move := strings.NewReplacer(inImage, dir, "/tmp/dcgm-exporter-debug", filepath.Join(dir, "dumps")).Replace
	if err := os.CopyFS(dir, os.DirFS(root+"/etc")); err != nil {
		t.Fatal(err)
	}
	cert, key := selfsigned.Pair(t)
	for name, content := range map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": cert} {
		folder.Write(t, filepath.Join(dir, "tls", name), content)
	}
	for path, content := range w.Files {
		folder.Write(t, move(path), move(content))
	}
	for name, value := range w.Env {
		env = append(env, name+"="+move(strings.ReplaceAll(value, "spec.nodeName", "node-1")))
	}
	for _, a := range w.Args {
		args = append(args, move(a))
	}
	return args, env
}

// TestOddSettingsServe checks that contradictory or incomplete settings do not prevent the start. GPUs are served, and
// the log has a warning. Package config tests settings that it corrects itself.
func TestOddSettingsServe(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		want func(page) bool
		says string
	}{
		"a ConfigMap without a cluster": {
			args: []string{"-m", "monitoring:counters"},
			says: "Cannot read the counters ConfigMap; using the counters file\" retries=false",
		},
		"a switch followed by its value": {
			args: []string{"-n", "true"}, says: "Reading -n true as --no-hostname=true",
			want: func(p page) bool { return p.By("DCGM_FI_DEV_GPU_TEMP", "hostname")[""] > 0 },
		},
		"pod labels without the node's name": {
			args: []string{"-k", "--kubernetes-enable-pod-labels", "--kubernetes-enable-dra"},
			says: "NODE_NAME is not set",
			want: func(p page) bool {
				missing := p.By("dcgm_exporter_kubernetes_api_success", "resource")
				return len(missing) == 2 && missing["pods"] == 0 && missing["resourceslices"] == 0
			},
		},
		"pprof on all addresses": {
			args: []string{"--enable-pprof", "--address=:0"}, says: "/debug/pprof/ rejects every request",
		},
		"a GPU that does not exist": {args: []string{"-d", "g:0-7,99"}, says: "couldn't find requested GPU ID '99'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := simulate(t, "h100x8", nil, tt.args...)
			r.sees("temperatures, and a series about what is missing", func(p page) bool {
				return len(p.By("DCGM_FI_DEV_GPU_TEMP", "gpu")) == 8 && (tt.want == nil || tt.want(p))
			})
			if lines := strings.Split(r.log.String(), "\n"); !slices.ContainsFunc(lines, func(line string) bool {
				return strings.Contains(line, "level=WARN") && strings.Contains(line, tt.says)
			}) {
				t.Errorf("log does not contain the warning %q", tt.says)
			}
			r.stops()
		})
	}
}
