package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
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

// startOn starts an exporter on the node, which releases for a millisecond only where no request
// says for how long.
func startOn(t *testing.T, node *nodeServer) *exporter {
	t.Helper()
	api := httptest.NewServer(node)
	t.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	return startIn(t, map[string]string{"NODE_NAME": "n", "KUBECONFIG": kubeconfigOf(t, api.URL)},
		sim(t, "h100x8", "", "--kubernetes-release-on-pause", "--release-timeout=1ms")...)
}

// kubeconfigOf writes a kubeconfig for an API server and returns its path.
func kubeconfigOf(t *testing.T, url string) string {
	t.Helper()
	return write(t, "config", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"contexts": [{"name": "c", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": {"server": %q}}]}`, url))
}

func released(p page) bool {
	return p.value("dcgm_exporter_released") == 1 && len(p.series("DCGM_FI_DEV_GPU_TEMP")) == 0
}

func inUse(p page) bool {
	return p.value("dcgm_exporter_released") == 0 && len(p.series("DCGM_FI_DEV_GPU_TEMP")) > 0
}

// A label that is there before the exporter is: nothing is opened, not for a moment.
func TestPausedBeforeTheStart(t *testing.T) {
	t.Parallel()
	node := &nodeServer{value: "paused-for-driver-upgrade", version: 1, changed: make(chan struct{})}
	e := startOn(t, node)
	e.until("the label is seen", func(p page) bool {
		return released(p) && p.series("dcgm_exporter_kubernetes_api_success", "resource")["nodes"] == 1
	})
	e.until("many intervals", func(p page) bool {
		return p.series("dcgm_exporter_collect_failures_total", "reason")["released"] > 80 // 8 s, past the wait of the start
	})
	if strings.Contains(e.log.String(), "Session opened") {
		t.Errorf("the driver was opened:\n%s", e.log)
	}
	node.set(func() { node.value = "true" })
	e.until("no longer paused", func(p page) bool {
		return inUse(p) && p.series("dcgm_exporter_sessions_total", "cause")["start"] == 1
	})
}

// Without a pause the wait is as long as the API server's answer.
func TestNotPausedAtTheStart(t *testing.T) {
	t.Parallel()
	e := startOn(t, &nodeServer{value: "true", version: 1, changed: make(chan struct{})})
	page := e.until("data", inUse)
	if n := page.series("dcgm_exporter_sessions_total", "cause")["start"]; n != 1 || strings.Contains(e.log.String(), "timed out") {
		t.Errorf("%v sessions of the start; the log:\n%s", n, e.log)
	}
}

func TestReleaseWhilePaused(t *testing.T) {
	t.Parallel()
	node := &nodeServer{value: "paused-for-driver-upgrade", denied: true, version: 1, changed: make(chan struct{})}
	e := startOn(t, node)
	answers := func(p page) float64 { return p.series("dcgm_exporter_kubernetes_api_success", "resource")["nodes"] }

	e.until("no permission, and data", func(p page) bool {
		_, reported := p.series("dcgm_exporter_kubernetes_api_success", "resource")["nodes"]
		return inUse(p) && reported && answers(p) == 0
	})
	if grant := `grant the service account the verb \"list\" on \"nodes\"`; !strings.Contains(e.log.String(), grant) {
		t.Errorf("the log does not say what to grant:\n%s", e.log)
	}
	node.set(func() { node.denied = false })
	e.until("paused when first seen", func(p page) bool { return released(p) && answers(p) == 1 })
	e.release <- struct{}{} // for the configured millisecond: shortens nothing
	e.release <- struct{}{} // taken when the one before is over
	node.set(func() { node.value = "paused-for-mig-change" })
	e.until("paused for something else", released)
	node.set(func() { node.value = "true" })
	e.until("no longer paused", func(p page) bool {
		return inUse(p) && p.series("dcgm_exporter_sessions_total", "cause")["released"] == 1
	})
	node.set(func() { node.value = "paused-for-mig-change" })
	e.until("paused again", released)
	e.acquire <- struct{}{}
	e.until("taken back by signal", inUse)
	if err := e.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}
