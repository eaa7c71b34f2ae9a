package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
)

// A nodeServer is an API server of one node, whose label a test sets.
type nodeServer struct {
	mu      sync.Mutex
	version int
	value   string
	denied  bool
	changed chan struct{} // closed by the next change
}

func (s *nodeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	denied := s.denied
	s.mu.Unlock()
	if denied || r.URL.Path != "/api/v1/nodes" || r.URL.Query().Get("fieldSelector") != "metadata.name=n" {
		w.WriteHeader(http.StatusForbidden)
		json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403})
		return
	}
	if r.URL.Query().Get("watch") == "" {
		node, version, _ := s.node()
		json.NewEncoder(w).Encode(map[string]any{"kind": "NodeList", "apiVersion": "v1",
			"metadata": map[string]any{"resourceVersion": version}, "items": []any{node}})
		return
	}
	w.(http.Flusher).Flush()
	seen := r.URL.Query().Get("resourceVersion")
	for {
		node, version, changed := s.node()
		if version != seen {
			json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": node})
			w.(http.Flusher).Flush()
			seen = version
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

func (s *nodeServer) node() (node map[string]any, version string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version = fmt.Sprint(s.version)
	return map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{
		"name": "n", "resourceVersion": version, "labels": map[string]any{"nvidia.com/gpu.deploy.dcgm-exporter": s.value},
	}}, version, s.changed
}

func (s *nodeServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// log is what a running exporter writes.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestReleaseWhilePaused(t *testing.T) {
	node := &nodeServer{value: "paused-for-driver-upgrade", denied: true, version: 1, changed: make(chan struct{})}
	api := httptest.NewServer(node)
	t.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"contexts": [{"name": "c", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": {"server": %q}}]}`, api.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"NODE_NAME": "n", "KUBECONFIG": kubeconfig}
	ctx, cancel := context.WithCancel(t.Context())
	said, listening, done := &log{}, make(chan string, 1), make(chan error, 1)
	release, acquire := make(chan struct{}), make(chan struct{})
	go func() {
		done <- app.Run(ctx, app.Process{
			Args: []string{"--source=sim", "--address=127.0.0.1:0", "--collect-interval=100", "--kubernetes-release-on-pause", "--release-timeout=1ms"},
			Env:  func(name string) (string, bool) { v, ok := env[name]; return v, ok },
			Out:  io.Discard, Err: said, Start: time.Now(), Version: "test", Release: release, Acquire: acquire,
			Listening: func(a net.Addr) { listening <- a.String() },
		})
	}()
	var url string
	select {
	case a := <-listening:
		url = "http://" + a + "/metrics"
	case err := <-done:
		t.Fatalf("Run: %v\n%s", err, said)
	}
	until := func(what string, wanted ...string) {
		t.Helper()
		tick, deadline := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
		defer tick.Stop()
		for {
			page := get(t, url)
			missing := ""
			for _, w := range wanted {
				if !strings.Contains(page, w) {
					missing = w
				}
			}
			if missing == "" {
				return
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%s: %q is not on the page:\n%s\nlog:\n%s", what, missing, page, said)
			}
		}
	}
	const released, inUse = "\ndcgm_exporter_released 1\n", "\ndcgm_exporter_collect_success 1\n"
	until("no permission", inUse, `dcgm_exporter_kubernetes_api_success{resource="nodes"} 0`)
	if verb := `grant the service account the verb \"list\" on \"nodes\"`; !strings.Contains(said.String(), verb) {
		t.Errorf("the log does not say what to grant:\n%s", said)
	}
	node.set(func() { node.denied = false })
	until("paused when first seen", released, `dcgm_exporter_kubernetes_api_success{resource="nodes"} 1`)
	release <- struct{}{} // for the configured millisecond: shortens nothing
	release <- struct{}{} // taken when the one before is over
	until("paused, and released by signal", released)
	node.set(func() { node.value = "paused-for-mig-change" })
	until("paused for something else", released)
	node.set(func() { node.value = "true" })
	until("no longer paused", inUse, "\ndcgm_exporter_released 0\n", `dcgm_exporter_sessions_total{cause="released"} 1`)
	node.set(func() { node.value = "paused-for-mig-change" })
	until("paused again", released)
	acquire <- struct{}{}
	until("taken back by signal", inUse)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := (&http.Client{Timeout: time.Minute}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func TestReleaseOnPauseNeedsTheNode(t *testing.T) {
	err := app.Run(t.Context(), app.Process{
		Args: []string{"--source=sim", "--address=127.0.0.1:0", "--kubernetes-release-on-pause"},
		Env:  func(string) (string, bool) { return "", false }, Out: io.Discard, Err: io.Discard, Start: time.Now(),
	})
	if err == nil || !strings.HasPrefix(err.Error(), "NODE_NAME is not set: --kubernetes-release-on-pause") {
		t.Errorf("Run: %v", err)
	}
}
