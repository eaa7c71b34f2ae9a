package process

import (
	"crypto/tls"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/selfsigned"
	"github.com/gpu-telemetry/dcgm-exporter/tests/reference"
)

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
