// Package apiserver is a fake API server for tests of code that reads a cluster. It serves recorded objects in pages
// like kube-apiserver, records the requests, and fails as scripted.
package apiserver

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A Server serves lists. Set its fields before the first request.
type Server struct {
	// Items returns the i-th object of a path's list as JSON. Count is the number of objects. Without a count, the list
	// is empty if every API server serves the path; otherwise the path is not found.
	Items map[string]func(i int) []byte
	Count map[string]int
	// Wire returns the i-th object of a path's list as protobuf, for clients that accept it. A path without an entry is
	// served as JSON.
	Wire map[string]func(i int) []byte
	// Forbidden lists the paths that RBAC forbids.
	Forbidden map[string]bool
	// Before, if not nil, is called for each request. If it returns true, it has written the response.
	Before func(w http.ResponseWriter, r *http.Request) bool

	// URL is the address of the server.
	URL string

	mu       sync.Mutex
	requests []string
}

// Start starts the server, which runs until the test ends.
func (s *Server) Start(t testing.TB) *Server {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Kubeconfig writes a kubeconfig for the server with the context "test", and returns its path.
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	return Kubeconfig(t, s.URL)
}

// Kubeconfig writes a kubeconfig for the server at url with the context "test", and returns its path.
func Kubeconfig(t testing.TB, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
users: [{name: test, user: {token: secret}}]
`, url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Add serves the objects as the list at a path.
func (s *Server) Add(t testing.TB, path string, objects ...any) *Server {
	t.Helper()
	var all [][]byte
	for _, o := range objects {
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	return s.Generate(path, len(all), func(i int) []byte { return all[i] })
}

// Generate serves n objects at a path. item returns the i-th object each time it is requested.
func (s *Server) Generate(path string, n int, item func(i int) []byte) *Server {
	if s.Items == nil {
		s.Items, s.Count = map[string]func(int) []byte{}, map[string]int{}
	}
	s.Items[path], s.Count[path] = item, n
	return s
}

// Requests returns the requests in order, such as "GET /api/v1/nodes?limit=500".
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Lists returns the number of lists started and of pages requested, by path. It counts only requests with a limit.
func (s *Server) Lists() (lists, pages map[string]int) {
	lists, pages = map[string]int{}, map[string]int{}
	for _, r := range s.Requests() {
		_, uri, _ := strings.Cut(r, " ")
		path, query, _ := strings.Cut(uri, "?")
		if !strings.Contains(query, "limit=") {
			continue
		}
		pages[path]++
		if !strings.Contains(query, "continue=") {
			lists[path]++
		}
	}
	return lists, pages
}

// Status writes an error response of the form that kube-apiserver uses.
func Status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "message": message,
		"reason": reason, "code": code,
	})
}

// ServeHTTP serves /version and lists.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	s.mu.Unlock()
	if s.Before != nil && s.Before(w, r) {
		return
	}
	path := r.URL.Path
	if path == "/version" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"major":"1","minor":"36","gitVersion":"v1.36.3"}`))
		return
	}
	if s.Forbidden[path] {
		resource := path[strings.LastIndex(path, "/")+1:]
		Status(w, http.StatusForbidden, "Forbidden",
			fmt.Sprintf("%s is forbidden: User \"jane\" cannot list resource %q in API group \"\" at the cluster scope",
				resource, resource))
		return
	}
	total, known := s.Count[path]
	if !known {
		if builtIn(path) {
			total = 0
		} else {
			Status(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
			return
		}
	}
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || limit <= 0 {
		limit = max(1, total)
	}
	start := 0
	if token := r.URL.Query().Get("continue"); token != "" {
		if start, err = strconv.Atoi(token); err != nil {
			Status(w, http.StatusBadRequest, "BadRequest", "continue key is not valid")
			return
		}
	}
	end := min(start+limit, total)
	metadata := map[string]any{"resourceVersion": "1000"}
	if end < total {
		metadata["continue"] = strconv.Itoa(end)
		metadata["remainingItemCount"] = total - end
	}
	if item := s.Wire[path]; item != nil && strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		about := metav1.ListMeta{ResourceVersion: "1000"}
		if end < total {
			about.Continue = strconv.Itoa(end)
		}
		wireList(w, path, about, item, start, end)
		return
	}
	s.list(w, path, metadata, start, end)
}

// wireList writes a page in protobuf: the magic number, then an envelope with the list. Fields 1 and 2 of the list are
// its metadata and its items (generated.proto of k8s.io/api).
func wireList(w http.ResponseWriter, path string, about metav1.ListMeta, item func(i int) []byte, start, end int) {
	data, err := about.Marshal()
	if err != nil {
		Status(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	raw := binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(data)))
	raw = append(raw, data...)
	for i := start; i < end; i++ {
		data := item(i)
		raw = binary.AppendUvarint(append(raw, 2<<3|2), uint64(len(data)))
		raw = append(raw, data...)
	}
	kind, version := typeOf(path)
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{Kind: kind + "List", APIVersion: version}, Raw: raw}
	if data, err = envelope.Marshal(); err != nil {
		Status(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	_, _ = w.Write(append([]byte("k8s\x00"), data...))
}

// list writes a page as compact JSON, like a real server.
func (s *Server) list(w http.ResponseWriter, path string, metadata map[string]any, start, end int) {
	about, err := json.Marshal(metadata)
	if err != nil {
		Status(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	kind, version := typeOf(path)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind+"List", version, about)
	for i := start; i < end; i++ {
		if i > start {
			_, _ = w.Write([]byte(","))
		}
		_, _ = w.Write(s.Items[path](i))
	}
	_, _ = w.Write([]byte("]}\n"))
}

var kinds = map[string]string{
	"nodes": "Node", "pods": "Pod", "daemonsets": "DaemonSet", "configmaps": "ConfigMap", "namespaces": "Namespace",
	"resourcequotas": "ResourceQuota", "secrets": "Secret", "events": "Event",
	"customresourcedefinitions": "CustomResourceDefinition", "clusterpolicies": "ClusterPolicy",
	"nvidiadrivers": "NVIDIADriver", "gpuclusters": "GPUCluster",
}

func typeOf(path string) (kind, version string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	kind = kinds[parts[len(parts)-1]]
	if parts[0] == "api" {
		return kind, parts[1]
	}
	return kind, parts[1] + "/" + parts[2]
}

// builtIn reports whether every API server serves the path.
func builtIn(path string) bool {
	for _, prefix := range []string{"/api/v1/", "/apis/apps/", "/apis/apiextensions.k8s.io/"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}
