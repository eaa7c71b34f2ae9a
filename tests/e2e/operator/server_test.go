//go:build e2e

package operator

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/wait"
)

// patience bounds every wait. It is generous on purpose: no test measures speed.
const patience = time.Minute

// A server is an API server with etcd, the DaemonSet controller and the scheduler.
type server struct {
	url, folder string
	client      http.Client
}

// These are the users who run gpuop. The administrator may do everything, and a state defines what the reader may do.
const (
	administrator = "admin"
	reader        = "reader"
)

// start starts a server with NVIDIA's CRDs that runs until the test ends, and builds gpuop.
func start(t *testing.T) *server {
	t.Helper()
	programs := os.Getenv("E2E_PROGRAMS")
	if programs == "" {
		t.Fatal("E2E_PROGRAMS is not set: run make states")
	}
	s := &server{folder: t.TempDir(), url: "https://" + free(t)}
	s.client = http.Client{
		Timeout: 30 * time.Second,
		// the server has a self-signed certificate, and is on loopback
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, "key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(private)}))
	s.write(t, "tokens.csv", []byte("admin,admin,admin,\"system:masters\"\nreader,reader,reader\n"+
		"controllers,controllers,controllers,\"system:masters\"\nscheduler,scheduler,scheduler,\"system:masters\"\n"))
	for _, user := range []string{administrator, reader, "controllers", "scheduler"} {
		s.kubeconfig(t, user)
	}

	etcd, peer := "http://"+free(t), "http://"+free(t)
	s.run(t, filepath.Join(programs, "etcd"), "--data-dir="+filepath.Join(s.folder, "etcd"), "--unsafe-no-fsync",
		"--log-level=warn", "--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	host, port, _ := strings.Cut(strings.TrimPrefix(s.url, "https://"), ":")
	key := filepath.Join(s.folder, "key")
	s.run(t, filepath.Join(programs, "kube-apiserver"), "--etcd-servers="+etcd, "--bind-address="+host,
		"--secure-port="+port, "--advertise-address="+host, "--endpoint-reconciler-type=none", "--allow-privileged",
		"--cert-dir="+filepath.Join(s.folder, "pki"), "--token-auth-file="+filepath.Join(s.folder, "tokens.csv"),
		"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--service-cluster-ip-range=10.96.0.0/24", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key)
	eventually(t, "API server to be ready", func() error {
		_, err := s.try(http.MethodGet, "/readyz", nil)
		return err
	})
	// the nodes have no kubelet, so controllers that would mark them as not ready are disabled
	s.run(t, filepath.Join(programs, "kube-controller-manager"), "--kubeconfig="+s.kubeconfigOf("controllers"),
		"--leader-elect=false", "--secure-port=0",
		"--controllers=daemonset-controller,deployment-controller,replicaset-controller,garbage-collector-controller")
	s.run(t, filepath.Join(programs, "kube-scheduler"), "--kubeconfig="+s.kubeconfigOf("scheduler"),
		"--leader-elect=false", "--secure-port=0")
	s.build(t)
	s.install(t)
	return s
}

// free returns a loopback address without a listener.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *server) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *server) kubeconfigOf(user string) string {
	return filepath.Join(s.folder, user+".kubeconfig")
}

func (s *server) kubeconfig(t *testing.T, user string) {
	t.Helper()
	s.write(t, user+".kubeconfig", fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: e2e
clusters: [{name: e2e, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: me, user: {token: %s}}]
contexts: [{name: e2e, context: {cluster: e2e, user: me}}]
`, s.url, user))
}

// run starts a program that runs until the test ends.
func (s *server) run(t *testing.T, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(s.folder, filepath.Base(program)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		log.Close()
		if t.Failed() {
			data, _ := os.ReadFile(log.Name())
			t.Logf("end of the log of %s:\n%s", filepath.Base(program), data[max(0, len(data)-2000):])
		}
	})
}

// eventually calls try until it returns no error. After patience, the test ends with the last error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	if err := wait.Until(patience, try); err != nil {
		t.Fatalf("timed out waiting for %s: %v", what, err)
	}
}

// A refusal is an error response of the server.
type refusal struct {
	code int
	body string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.code, r.body) }

// try sends a request as administrator.
func (s *server) try(method, path string, object any) ([]byte, error) {
	var body io.Reader
	if object != nil {
		data, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequest(method, s.url+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+administrator)
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, &refusal{response.StatusCode, string(answer)}
	}
	return answer, nil
}

// do sends a request as administrator. A failed request ends the test.
func (s *server) do(t *testing.T, method, path string, object any) map[string]any {
	t.Helper()
	answer, err := s.try(method, path, object)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	var got map[string]any
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}
