package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/tests/reference"
)

const repository = "../.."

// TestNVIDIAsManifestsStart starts the exporter with the arguments, variables and files of each
// rendering of NVIDIA's chart and of the operator's DaemonSet. Only what a container has of its own
// differs: the folder of the image, the port, and where values come from.
func TestNVIDIAsManifestsStart(t *testing.T) {
	all := append(reference.Chart(t), reference.Operator(t))
	if len(all) < 10 {
		t.Fatalf("%d workloads, want those of ten renderings at least", len(all))
	}
	// What the operator adds, by the settings of its ClusterPolicy.
	filled := all[len(all)-1]
	filled.Name += " with its settings"
	filled.Env = map[string]string{
		"DCGM_REMOTE_HOSTENGINE_INFO": "nvidia-dcgm:5555", "DCGM_HPC_JOB_MAPPING_DIR": "/run/nvidia/dcgm-job-mapping",
		"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS": "true", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID": "true",
	}
	for name, value := range all[len(all)-1].Env {
		filled.Env[name] = value
	}
	filled.Env["DCGM_EXPORTER_COLLECTORS"] = "/etc/dcgm-exporter/dcgm-metrics.csv"
	filled.Files = map[string]string{"/etc/dcgm-exporter/dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C)."}
	for _, w := range append(all, filled) {
		t.Run(w.Name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "") // no cluster
			args, env := inFolder(t, w)
			e := startIn(t, env, append(args, "--source=sim", "--sim-node=h100x8")...)
			client := &http.Client{Timeout: patience, Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the certificate is this test's
			}}
			web, want := w.Files["/etc/dcgm-exporter/web-config.yaml"], http.StatusOK
			if strings.Contains(web, "tls_server_config") {
				e.url = strings.Replace(e.url, "http", "https", 1)
			}
			if strings.Contains(web, "basic_auth_users") {
				want = http.StatusUnauthorized
			}
			resp, err := client.Get(e.url + "/health")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("GET /health: status %d, want %d", resp.StatusCode, want)
			}
			if err := e.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// inFolder returns the arguments and variables of a workload whose image and volumes lie in a
// folder of this machine.
func inFolder(t *testing.T, w reference.Workload) (args []string, env map[string]string) {
	t.Helper()
	dir := t.TempDir()
	const inImage = "/etc/dcgm-exporter"
	move := strings.NewReplacer(inImage, dir, "/tmp/dcgm-exporter-debug", filepath.Join(dir, "dumps")).Replace
	shipped, err := filepath.Glob(filepath.Join(repository, "etc", "*.csv"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(path, content string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range shipped {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		put(filepath.Join(dir, filepath.Base(file)), string(content))
	}
	cert, key := certificate(t)
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		put(filepath.Join(dir, "tls", name), map[bool]string{true: key, false: cert}[name == "tls.key"])
	}
	for path, content := range w.Files {
		put(move(path), move(content))
	}
	env = map[string]string{}
	for name, value := range w.Env {
		env[name] = move(strings.ReplaceAll(value, "spec.nodeName", "node-1"))
	}
	for _, a := range w.Args {
		args = append(args, move(a))
	}
	return args, env
}

// certificate returns a certificate that is its own authority, and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// TestOddSettingsServe holds that settings which contradict each other, or say little, end no
// start: GPUs are served, and what is missing is a series.
func TestOddSettingsServe(t *testing.T) {
	yaml2 := write(t, "v2.yaml", "version: 2\nmetrics: {fields: [{name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge}]}\ncollections: [{name: all, every: 100ms, metrics: {include: [\"*\"]}}]\n")
	tests := []struct {
		name string
		env  map[string]string
		args []string
		want func(page) bool
		says string
	}{
		{"a file and no ConfigMap", nil, []string{"-m", "none"}, nil, ""},
		{"no window", nil, []string{"-x", "0"}, nil, ""},
		{"bind-unbind", map[string]string{"DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL": "soon"}, []string{"--enable-gpu-bind-unbind-watch"}, nil,
			`DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL \"soon\"`},
		{"a bad expression", nil, []string{"--kubernetes-pod-label-allowlist-regex=("}, nil, "is left out"},
		{"a switch with its value apart", nil, []string{"-n", "true"}, func(p page) bool {
			return p.series("DCGM_FI_DEV_GPU_TEMP", "hostname")[""] > 0
		}, "-n true counts as --no-hostname=true"},
		{"pod labels without the node's name", nil, []string{"-k", "--kubernetes-enable-pod-labels", "--kubernetes-enable-dra"}, func(p page) bool {
			missing := p.series("dcgm_exporter_kubernetes_api_success", "resource")
			return len(missing) == 2 && missing["pods"] == 0 && missing["resourceslices"] == 0
		}, "NODE_NAME is not set"},
		{"a file of version 2", map[string]string{"DCGM_EXPORTER_CONFIG_FILE": yaml2}, nil, nil, ""},
		{"profiles for all clients", nil, []string{"--enable-pprof", "--address=:0"}, nil, "--enable-pprof is not served"},
		{"a GPU that is not there", nil, []string{"-d", "g:0-7,99"}, nil, "couldn't find requested GPU ID '99'"},
		{"an engine beside the simulation", map[string]string{"DCGM_REMOTE_HOSTENGINE_INFO": "nvidia-dcgm:5555"}, nil, nil, "has no effect with --source=sim"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "") // no cluster
			e := startIn(t, tt.env, sim(t, "h100x8", "", tt.args...)...)
			e.url = strings.Replace(e.url, "[::]", "127.0.0.1", 1)
			e.until("temperatures, and what is said to be missing", func(p page) bool {
				return len(p.series("DCGM_FI_DEV_GPU_TEMP", "gpu")) == 8 && (tt.want == nil || tt.want(p))
			})
			if lines := slices.Collect(strings.Lines(e.log.String())); !slices.ContainsFunc(lines, func(line string) bool {
				return tt.says == "" || strings.Contains(line, "level=WARN") && strings.Contains(line, tt.says)
			}) {
				t.Errorf("no warning %q in\n%s", tt.says, e.log)
			}
			if err := e.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// own returns the families of a page that dcgm-exporter has not.
func own(p page) []string {
	var names []string
	for name := range p.families {
		if !strings.HasPrefix(name, "DCGM_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestStrictPage holds what --compatibility=strict serves of a node that is cut by MIG and shared:
// families of the reference alone, values of a GPU for each instance, and none for the GPU that is
// cut.
func TestStrictPage(t *testing.T) {
	e := startIn(t, map[string]string{"DCGM_EXPORTER_COMPATIBILITY": "strict"}, sim(t, "a100-mig", "")...)
	p := e.until("temperatures", func(p page) bool { return len(p.families["DCGM_FI_DEV_GPU_TEMP"].GetMetric()) > 0 })
	if names := own(p); len(names) != 0 {
		t.Errorf("families of our own: %q", names)
	}
	plain := start(t, sim(t, "a100-mig", "")...).collected()
	instances, cut := plain.series("DCGM_FI_DEV_FB_USED", "gpu", "GPU_I_PROFILE", "GPU_I_ID"), map[string]bool{}
	want := map[string]bool{}
	for key := range instances {
		if gpu, rest, _ := strings.Cut(key, "/"); rest != "/" {
			cut[gpu], want[key] = true, true
		}
	}
	whole := 0
	for gpu := range plain.series("DCGM_FI_DEV_GPU_TEMP", "gpu") {
		if !cut[gpu] {
			want[gpu+"//"] = true
			whole++
		}
	}
	if len(cut) == 0 || whole == 0 {
		t.Fatalf("the node needs GPUs that are cut and GPUs that are not: %v", instances)
	}
	got := map[string]bool{}
	for key := range p.series("DCGM_FI_DEV_GPU_TEMP", "gpu", "GPU_I_PROFILE", "GPU_I_ID") {
		got[key] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("temperatures by gpu, GPU_I_PROFILE and GPU_I_ID (-want +got):\n%s", diff)
	}
	if !strings.Contains(p.text, `pod="`) || !regexp.MustCompile(`DCGM_FI_DEV_POWER_USAGE\{.*GPU_I_ID="\d+".*\} \d+\.\d{6}\n`).MatchString(p.text) {
		t.Errorf("no pods, or power not as the reference spells it:\n%s", p.text)
	}
}

// TestStrictReadsGPUsForTheirInstances holds that -d i has values of whole GPUs.
func TestStrictReadsGPUsForTheirInstances(t *testing.T) {
	e := start(t, sim(t, "a100-mig", "", "--compatibility=strict", "-d", "i")...)
	p := e.until("temperatures", func(p page) bool { return len(p.families["DCGM_FI_DEV_GPU_TEMP"].GetMetric()) > 0 })
	for key := range p.series("DCGM_FI_DEV_GPU_TEMP", "gpu", "GPU_I_ID") {
		if strings.HasSuffix(key, "/") {
			t.Errorf("a series of GPU %s", key)
		}
	}
}
