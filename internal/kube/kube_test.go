package kube_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

const (
	podsPath  = "/api/v1/pods"
	nodesPath = "/api/v1/nodes"
	mapsPath  = "/api/v1/namespaces/monitoring/configmaps"
)

func pod(name, uid, phase string, labels map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"namespace": "ml", "name": name, "uid": uid, "labels": labels, "resourceVersion": "1",
			"creationTimestamp": "2026-01-01T12:00:00Z",
		},
		"spec":   map[string]any{"nodeName": "node-1"},
		"status": map[string]any{"phase": phase},
	}
}

func TestPodsOfOneNode(t *testing.T) {
	s := newServer(t)
	s.put(podsPath, pod("a", "1", "Running", map[string]any{"team": "ml"}), pod("b", "2", "Succeeded", nil))
	c, outcomes := s.client()
	ctx, cancel := context.WithCancel(t.Context())
	pods := c.Pods(ctx, "node-1")
	until(t, "pod a", func() bool { _, ok := pods.Get("ml", "a"); return ok })
	want(t, "selector", s.selector("list", podsPath), "spec.nodeName=node-1")
	a, _ := pods.Get("ml", "a")
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Local()
	want(t, "pod a", a, kube.Pod{UID: "1", Labels: map[string]string{"team": "ml"}, Created: noon})
	if b, _ := pods.Get("ml", "b"); !b.Finished {
		t.Error("pod b has succeeded, but Finished = false, want true")
	}
	if _, ok := pods.Get("other", "a"); ok {
		t.Error("pod of another namespace is known, want it unknown")
	}

	until(t, "the watch", func() bool { return s.watched(podsPath) })
	want(t, "selector of the watch", s.selector("watch", podsPath), "spec.nodeName=node-1")
	before := pods.Revision()
	busy := pod("a", "1", "Running", map[string]any{"team": "ml"})
	busy["status"].(map[string]any)["podIP"] = "10.0.0.1"
	s.send(podsPath, "MODIFIED", busy)
	s.send(podsPath, "MODIFIED", pod("a", "3", "Failed", nil))
	until(t, "pod a created again", func() bool { a, _ := pods.Get("ml", "a"); return a.UID == "3" && a.Finished })
	s.send(podsPath, "DELETED", pod("a", "3", "Failed", nil))
	until(t, "pod a gone", func() bool { _, ok := pods.Get("ml", "a"); return !ok })
	if pods.Revision() != before+2 {
		t.Errorf("revision after two relevant changes = %d, want %d", pods.Revision(), before+2)
	}
	if err, ok := outcomes.of("pods"); !ok || err != nil {
		t.Errorf("reported outcome = %v (reported: %v), want success", err, ok)
	}

	cancel()
	until(t, "the end of the watch", func() bool { return !s.watched(podsPath) })
	if b, ok := pods.Get("ml", "b"); !ok || b.UID != "2" {
		t.Errorf("after the context ended: pod ml/b = %v, found = %v; want UID 2", b, ok)
	}
}

// A static pod's annotation on the node is the hash of its manifest. The API server identifies it by the UID of its
// mirror pod. HAMi records a pod's devices in an annotation.
func TestAnnotationsOfPods(t *testing.T) {
	s := newServer(t)
	mirror := pod("static-node-1", "mirror", "Running", nil)
	mirror["metadata"].(map[string]any)["annotations"] = map[string]any{
		"kubernetes.io/config.hash": "a3f5c1d2e4b6978899aabbccddeeff00", "kubernetes.io/config.source": "file",
	}
	vgpu := pod("vgpu", "2", "Running", nil)
	annotations := map[string]any{"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3000,0:;;"}
	vgpu["metadata"].(map[string]any)["annotations"] = annotations
	vgpu["spec"] = map[string]any{"containers": []any{map[string]any{"name": "main"}, map[string]any{"name": "beside"}}}
	s.put(podsPath, mirror, vgpu, pod("a", "1", "Running", nil))
	c, _ := s.client()
	pods := c.Pods(t.Context(), "node-1")
	until(t, "pod a", func() bool { _, ok := pods.Get("ml", "a"); return ok })
	of, _ := pods.Get("ml", "vgpu")
	want(t, "HAMi's annotation", of.Allocated, "GPU-1,NVIDIA,3000,0:;;")
	want(t, "containers", of.Containers, []string{"main", "beside"})
	known := map[string]string{"a3f5c1d2e4b6978899aabbccddeeff00": "mirror", "1": "1", "gone": "gone", "": ""}
	for of, uid := range known {
		want(t, "UID of "+of, pods.UIDOf(of), uid)
	}
	// The UID is still needed after the mirror is deleted, because the driver may report processes of the pod.
	until(t, "the watch", func() bool { return s.watched(podsPath) })
	s.send(podsPath, "DELETED", mirror)
	until(t, "the mirror gone", func() bool { _, ok := pods.Get("ml", "static-node-1"); return !ok })
	for of, uid := range known {
		want(t, "UID of "+of+" after the mirror", pods.UIDOf(of), uid)
	}
}

// If a watch fails, Stale returns the time of the last news until the API server answers again.
func TestStalePods(t *testing.T) {
	s := newServer(t)
	s.put(podsPath, pod("a", "1", "Running", nil))
	c, _ := s.client()
	pods := c.Pods(t.Context(), "node-1")
	until(t, "the watch", func() bool { return s.watched(podsPath) })
	listed := time.Now()
	if since := pods.Stale(); !since.IsZero() {
		t.Errorf("with an API server: Stale = %v, want the zero time", since)
	}
	s.deny("list", podsPath, true)
	s.deny("watch", podsPath, true)
	s.CloseClientConnections()
	until(t, "the silence", func() bool { return !pods.Stale().IsZero() })
	if last := pods.Stale(); last.Before(listed.Add(-time.Minute)) || last.After(time.Now()) {
		t.Errorf("last news = %v, want a time around %v", last, listed)
	}
	s.deny("list", podsPath, false)
	s.deny("watch", podsPath, false)
	until(t, "an answer", func() bool { return pods.Stale().IsZero() })
}

// An error for a rejected token does not mention missing permissions. An answer that is not a list does not mean that
// there are no pods.
func TestAnswerIsNoList(t *testing.T) {
	for kind, sentence := range map[string]string{
		"":           "the API server does not accept the token or certificate: ",
		"SecretList": `listing pods returned the unexpected kind "SecretList"`,
	} {
		s := newServer(t)
		s.put(podsPath, pod("a", "1", "Running", nil))
		s.kind, s.strange = kind, kind == ""
		c, outcomes := s.client()
		pods := c.Pods(t.Context(), "node-1")
		outcomes.fails(t, "pods", sentence)
		if _, ok := pods.Get("ml", "a"); ok {
			t.Errorf("after %q: pod ml/a is known, want it unknown", sentence)
		}
	}
}

func TestMissingVerbs(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		t.Run(verb, func(t *testing.T) {
			s := newServer(t)
			s.put(podsPath, pod("a", "1", "Running", nil))
			s.deny(verb, podsPath, true)
			c, outcomes := s.client()
			pods := c.Pods(t.Context(), "node-1")
			outcomes.fails(t, "pods",
				`no permission: grant the service account the verb "`+verb+`" on "pods" with a ClusterRole: `)
			s.deny(verb, podsPath, false)
			until(t, "pod a", func() bool { _, ok := pods.Get("ml", "a"); return ok })
			until(t, "success", func() bool { err, _ := outcomes.of("pods"); return err == nil })
		})
	}
}

func resourceSlice(version string, generation int, devices ...map[string]any) map[string]any {
	var list []any
	for _, d := range devices {
		if version == "v1beta1" {
			basic := map[string]any{"attributes": d["attributes"], "capacity": d["capacity"]}
			d = map[string]any{"name": d["name"], "basic": basic}
		}
		list = append(list, d)
	}
	return map[string]any{
		"apiVersion": "resource.k8s.io/" + version, "kind": "ResourceSlice",
		"metadata": map[string]any{"name": "slice-" + string(rune('a'+generation)), "resourceVersion": "1"},
		"spec": map[string]any{
			"driver": "gpu.nvidia.com", "nodeName": "node-1",
			"pool": map[string]any{"name": "node-1", "generation": generation}, "devices": list,
		},
	}
}

func device(name string, attributes map[string]string) map[string]any {
	all := map[string]any{"slots": map[string]any{"int": 7}}
	for k, v := range attributes {
		all[k] = map[string]any{"string": v}
	}
	return map[string]any{"name": name, "attributes": all}
}

func TestSlicesOfOneNode(t *testing.T) {
	type attributes = map[string]string
	for version, older := range map[string]string{"v1": "v1beta1", "v1beta2": "v1beta1", "v1beta1": "v1alpha3"} {
		t.Run(version, func(t *testing.T) {
			s := newServer(t)
			s.put("/apis/resource.k8s.io/"+older+"/resourceslices", resourceSlice(older, 1))
			path := "/apis/resource.k8s.io/" + version + "/resourceslices"
			placed := device("gpu-0-mig-1g12gb-19-3",
				attributes{"type": "mig", "parentUUID": "GPU-0", "profile": "1g.12gb"})
			placed["capacity"] = map[string]any{
				"memory": map[string]any{"value": "11264Mi"}, "shares": map[string]any{"value": 4},
			}
			mig := attributes{"gpu.nvidia.com/uuid": "MIG-1", "type": "mig", "profile": "1g.10gb"}
			s.put(path,
				resourceSlice(version, 1,
					device("gpu-0", attributes{"uuid": "GPU-old"}), device("gpu-9", attributes{"uuid": "GPU-9"})),
				resourceSlice(version, 2, device("gpu-0", attributes{"uuid": "GPU-0", "type": "gpu"}),
					device("gpu-1-mig", mig), placed, device("gpu-2", nil)),
			)
			c, _ := s.client()
			slices := c.Slices(t.Context(), "node-1")
			get := func(name string) kube.Device {
				d, _ := slices.Get("gpu.nvidia.com", "node-1", name)
				return d
			}
			until(t, "a slice", func() bool { return get("gpu-0").UUID != "" })
			want(t, "selector", s.selector("list", path), "spec.nodeName=node-1")
			want(t, "gpu-0, of the pool's latest generation", get("gpu-0"), kube.Device{UUID: "GPU-0"})
			want(t, "gpu-1-mig", get("gpu-1-mig"), kube.Device{UUID: "MIG-1", MIG: true, Profile: "1g.10gb"})
			want(t, "a MIG device that is created when a pod starts", get("gpu-0-mig-1g12gb-19-3"), kube.Device{
				MIG: true, Profile: "1g.12gb", Parent: "GPU-0", Start: 3,
				Capacity: map[string]float64{"memory": 11264 << 20, "shares": 4},
			})
			for _, name := range []string{"gpu-2", "gpu-3", "gpu-9"} {
				want(t, name+" without a UUID, missing, or of an old generation", get(name), kube.Device{})
			}
			if d, ok := slices.Get("gpu.nvidia.com", "node-2", "gpu-0"); ok {
				t.Errorf("device of another pool = %+v, want it unknown", d)
			}

			until(t, "the watch", func() bool { return s.watched(path) })
			before := slices.Revision()
			s.send(path, "MODIFIED", resourceSlice(version, 2, device("gpu-3", attributes{"uuid": "GPU-3"})))
			until(t, "the slice that lagged", func() bool { return get("gpu-3").UUID != "" })
			if slices.Revision() == before {
				t.Error("content changed, but the revision did not, want another revision")
			}
		})
	}
}

func TestClusterWithoutDRA(t *testing.T) {
	s := newServer(t)
	c, outcomes := s.client()
	slices := c.Slices(t.Context(), "node-1")
	outcomes.fails(t, "resourceslices", "the API server serves resourceslices.resource.k8s.io in none of the versions "+
		"[v1 v1beta2 v1beta1]; DRA needs Kubernetes 1.32")
	if _, ok := slices.Get("gpu.nvidia.com", "node-1", "gpu-0"); ok || slices.Revision() != 0 {
		t.Error("without DRA: a device is known or the revision is not 0, want neither")
	}
}

// The ResourceSlice was recorded on a real API server.
func TestRecordedSlice(t *testing.T) {
	var objects []map[string]any
	if err := json.Unmarshal(material.Read(t, "data/podresources/resourceslices.json"), &objects); err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	s.put("/apis/resource.k8s.io/v1/resourceslices", objects...)
	c, _ := s.client()
	slices := c.Slices(t.Context(), "e2e-node")
	until(t, "the MIG device", func() bool {
		d, ok := slices.Get("gpu.nvidia.com", "e2e-node", "gpu-3-mig-1g10gb-19-0")
		return ok && d.UUID == "MIG-a0000000-0000-5000-8000-000000000001" && d.MIG && d.Parent == "" &&
			d.Capacity["memory"] == 80<<30
	})
}

func configMap(data map[string]any) map[string]any {
	metadata := map[string]any{"namespace": "monitoring", "name": "counters"}
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
}

func TestConfigMap(t *testing.T) {
	s := newServer(t)
	c, _ := s.client()
	m := c.ConfigMap("monitoring", "counters", "metrics")
	s.put(mapsPath, configMap(map[string]any{"metrics": "DCGM_FI_DEV_GPU_TEMP, gauge, x"}))
	got, err := m.Await(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "content", string(got), "DCGM_FI_DEV_GPU_TEMP, gauge, x")

	fails := func(text string) {
		t.Helper()
		_, err := m.Await(t.Context(), time.Minute)
		wantError(t, err, text)
	}
	s.put(mapsPath, configMap(map[string]any{"other": "x"}))
	fails(`ConfigMap monitoring:counters has no text under the key "metrics"`)
	s.put(mapsPath)
	fails("ConfigMap monitoring/counters not found")
	s.deny("get", mapsPath, true)
	fails("ConfigMap monitoring:counters: no permission: " +
		`grant the service account the verb "get" on "configmaps" with a Role in the namespace monitoring: `)
	s.Close()
	if _, err := m.Await(t.Context(), 50*time.Millisecond); err == nil {
		t.Error("Await without an API server succeeded, want an error")
	}
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), text) {
		t.Errorf("error = %v\nwant %s", err, text)
	}
}

func TestSharingOfANode(t *testing.T) {
	for _, label := range []string{"nvidia.com/gpu.sharing-strategy", "cloud.google.com/gke-gpu-sharing-strategy"} {
		s := newServer(t)
		s.put(nodesPath, map[string]any{
			"apiVersion": "v1", "kind": "Node",
			"metadata": map[string]any{"name": "node-1", "labels": map[string]any{label: "mps"}},
		})
		c, _ := s.client()
		until(t, "MPS by "+label, c.MPS(t.Context(), "node-1"))
	}
}

func TestNoCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := kube.New(kube.Options{}); !errors.Is(err, kube.ErrNoCluster) {
		t.Errorf("New without a cluster: error = %v, want ErrNoCluster", err)
	}
	if _, err := kube.New(kube.Options{Kubeconfig: []string{"/nonexistent/config"}}); err == nil {
		t.Error("New with a missing kubeconfig succeeded, want an error")
	}
}

const claimsPath = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims"

func resourceClaim(name string, results ...any) map[string]any {
	return map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
		"metadata": map[string]any{"namespace": "ml", "name": name, "resourceVersion": "1"},
		"status":   map[string]any{"allocation": map[string]any{"devices": map[string]any{"results": results}}},
	}
}

func result(device string, admin any) map[string]any {
	r := map[string]any{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-1", "device": device}
	if admin != nil {
		r["adminAccess"] = admin
	}
	return r
}

// get returns what a claim in the namespace ml says about a device of the node.
func get(c *kube.Claims, claim, device, share string) podmapper.Claimed {
	return c.Get("ml", claim, "gpu.nvidia.com", "node-1", device, share)
}

// A claim's status says which devices it holds with admin access, and how much of a device's capacity each share
// consumes, in any format of a quantity. Unknown claims are read in the background. The revision changes once they are
// read.
func TestClaims(t *testing.T) {
	s := newServer(t)
	share := func(id string, consumed map[string]any) map[string]any {
		r := result("gpu-0", nil)
		r["shareID"], r["consumedCapacity"] = id, consumed
		return r
	}
	s.put(claimsPath,
		resourceClaim("monitor", result("gpu-0", true), result("gpu-1", true)),
		resourceClaim("mixed", result("gpu-0", true), result("gpu-1", false), result("gpu-2", nil)),
		resourceClaim("odd", "x", result("gpu-0", "yes")),
		resourceClaim("shares", share("a", map[string]any{"memory": "20Gi", "gpu.nvidia.com/shares": 1}),
			share("b", map[string]any{"memory": "60Gi", "odd": "x"})))
	c, outcomes := s.client()
	claims := c.Claims(t.Context())
	for _, claim := range []string{"monitor", "odd", "absent", "mixed", "shares"} {
		want(t, claim+" before it is read", get(claims, claim, "gpu-0", ""), podmapper.Claimed{})
	}
	claims.Wait(t.Context())
	if claims.Revision() == 0 {
		t.Error("revision after the claims were read = 0, want more")
	}
	for of, admin := range map[[2]string]bool{
		{"monitor", "gpu-0"}: true, {"monitor", "gpu-1"}: true, {"monitor", "gpu-2"}: false,
		{"mixed", "gpu-0"}: true, {"mixed", "gpu-1"}: false, {"mixed", "gpu-2"}: false,
		{"odd", "gpu-0"}: false, {"absent", "gpu-0"}: false,
	} {
		if got := get(claims, of[0], of[1], "").Admin; got != admin {
			t.Errorf("claim %v: admin access = %t, want %t", of, got, admin)
		}
	}
	if claims.Get("ml", "monitor", "gpu.nvidia.com", "node-2", "gpu-1", "").Admin ||
		claims.Get("other", "monitor", "gpu.nvidia.com", "node-1", "gpu-0", "").Admin {
		t.Error("device of another pool, or claim of another namespace, has admin access, want none")
	}
	for id, consumed := range map[string]map[string]float64{
		"a": {"memory": 20 << 30, "shares": 1}, "b": {"memory": 60 << 30, "odd": 0},
	} {
		want(t, id, get(claims, "shares", "gpu-0", id), podmapper.Claimed{Read: true, Consumed: consumed})
	}
	want(t, "another share", get(claims, "shares", "gpu-0", "c"), podmapper.Claimed{})
	until(t, "the API server's outcome", func() bool { _, ok := outcomes.of("resourceclaims"); return ok })
}

// If the API server forbids reading claims, the error is reported, and Get returns it too.
func TestForbiddenClaims(t *testing.T) {
	s := newServer(t)
	s.deny("get", claimsPath, true)
	c, outcomes := s.client()
	claims := c.Claims(t.Context())
	want(t, "before the answer", get(claims, "a", "gpu-0", ""), podmapper.Claimed{})
	claims.Wait(t.Context())
	want(t, "after it", get(claims, "a", "gpu-0", ""), podmapper.Claimed{Forbidden: true})
	if err, ok := outcomes.of("resourceclaims"); !ok || err == nil {
		t.Errorf("reported outcome = %v (reported: %t), want an error", err, ok)
	}
}

// server is a fake API server with a few objects.
type server struct {
	t *testing.T
	*httptest.Server

	mu       sync.Mutex
	objects  map[string][]map[string]any // by list path
	denied   map[string]bool             // by "verb path"
	kind     string                      // kind of lists; "" means the generic kind
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
