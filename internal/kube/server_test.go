package kube_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
)

// server is a fake API server with a few objects.
type server struct {
	t *testing.T
	*httptest.Server

	mu       sync.Mutex
	objects  map[string][]map[string]any // by list path
	denied   map[string]bool             // by "verb path"
	kind     string                      // of lists; "" means the generic kind
	strange  bool                        // the server rejects the token
	queries  map[string]string           // received field selectors by path
	watchers map[string][]chan map[string]any
	version  int
}

func newServer(t *testing.T) *server {
	s := &server{
		t: t, objects: map[string][]map[string]any{}, denied: map[string]bool{},
		queries: map[string]string{}, watchers: map[string][]chan map[string]any{}, version: 1,
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	path := r.URL.Path
	s.mu.Lock()
	verb, dir, name := "list", path, ""
	if _, ok := s.objects[path]; !ok {
		verb, dir, name = "get", filepath.Dir(path), filepath.Base(path)
	}
	if r.URL.Query().Get("watch") != "" {
		verb = "watch"
	}
	s.queries[verb+" "+dir] = r.URL.Query().Get("fieldSelector")
	objects, ok := s.objects[dir]
	switch {
	case s.strange:
		fail(w, http.StatusUnauthorized, "Unauthorized")
	case s.denied[verb+" "+dir]:
		fail(w, http.StatusForbidden, "Forbidden")
	case !ok:
		fail(w, http.StatusNotFound, "NotFound")
	case verb == "get":
		i := slices.IndexFunc(objects, func(o map[string]any) bool {
			return o["metadata"].(map[string]any)["name"] == name
		})
		if i >= 0 {
			json.NewEncoder(w).Encode(objects[i])
		} else {
			fail(w, http.StatusNotFound, "NotFound")
		}
	case verb == "list":
		kind := cmp.Or(s.kind, "List")
		json.NewEncoder(w).Encode(map[string]any{
			"kind": kind, "apiVersion": "v1", "items": objects,
			"metadata": map[string]any{"resourceVersion": fmt.Sprint(s.version)},
		})
	default:
		events := make(chan map[string]any, 16)
		s.watchers[dir] = append(s.watchers[dir], events)
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				s.mu.Lock()
				at := slices.Index(s.watchers[dir], events)
				s.watchers[dir] = slices.Delete(s.watchers[dir], at, at+1)
				s.mu.Unlock()
				return
			case e := <-events:
				json.NewEncoder(w).Encode(e)
				w.(http.Flusher).Flush()
			}
		}
	}
	s.mu.Unlock()
}

func fail(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
	})
}

// put sets the objects of a list.
func (s *server) put(path string, objects ...map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[path] = objects
}

func (s *server) deny(verb, path string, denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[verb+" "+path] = denied
}

// watched reports whether a list has a watcher.
func (s *server) watched(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers[path]) > 0
}

// send sends an event to every watcher of a list.
func (s *server) send(path, event string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	object["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(s.version)
	for _, w := range s.watchers[path] {
		w <- map[string]any{"type": event, "object": object}
	}
}

// selector returns the field selector of the latest request.
func (s *server) selector(verb, path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries[verb+" "+path]
}

// outcomes collects the outcomes that a client reported.
type outcomes struct {
	mu   sync.Mutex
	last map[string]error
}

func (o *outcomes) report(resource string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last[resource] = err
}

func (o *outcomes) of(resource string) (error, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	err, ok := o.last[resource]
	return err, ok
}

// fails waits until the latest request of a resource failed, and checks the beginning of its error.
func (o *outcomes) fails(t *testing.T, resource, text string) {
	t.Helper()
	until(t, "an error", func() bool { err, _ := o.of(resource); return err != nil })
	err, _ := o.of(resource)
	wantError(t, err, text)
}

// client returns a client of the server with a kubeconfig file.
func (s *server) client() (*kube.Client, *outcomes) {
	s.t.Helper()
	path := apiserver.Kubeconfig(s.t, s.URL)
	o := &outcomes{last: map[string]error{}}
	c, err := kube.New(kube.Options{Kubeconfig: []string{path}, Report: o.report})
	if err != nil {
		s.t.Fatal(err)
	}
	return c, o
}

// until waits until a condition holds.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

func want[T any](t *testing.T, what string, got, expected T) {
	t.Helper()
	if d := gocmp.Diff(expected, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}
