package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster/clustertest"
)

// watched serves a node's watch from a channel; a nil event ends the connection.
func watched(events <-chan object, refuse *atomic.Bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if refuse.Load() {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Query().Get("watch") != "true" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return true
			case e := <-events:
				if e == nil {
					return true
				}
				_ = json.NewEncoder(w).Encode(e)
				w.(http.Flusher).Flush()
			}
		}
	}
}

func nodeEvent(kind, name, version, gpus string) object {
	o := object{"kind": "Node", "apiVersion": "v1", "metadata": object{"name": name, "resourceVersion": version, "labels": object{"nvidia.com/gpu.present": "true"}}}
	if gpus != "" {
		o["status"] = object{"capacity": object{"nvidia.com/gpu": gpus}}
	}
	return object{"type": kind, "object": o}
}

func gpus(s *cluster.State) map[string]string {
	all := map[string]string{}
	for _, n := range s.Nodes {
		q := n.Status.Capacity["nvidia.com/gpu"]
		all[n.Name] = q.String()
	}
	return all
}

func TestWatchFollowsAndResumes(t *testing.T) {
	events := make(chan object)
	var refuse atomic.Bool
	s := (&clustertest.Server{Before: watched(events, &refuse)}).Add(t, "/api/v1/nodes", gpuNode("gpu-1")).Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	step, last := 0, map[string]string(nil)
	want := func(w map[string]string) {
		t.Helper()
		if diff := cmp.Diff(w, last); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", step, diff)
		}
	}
	go func() { events <- nodeEvent("ADDED", "gpu-2", "1001", "4") }()
	for state, err := range open(t, s).Watch(ctx, cluster.Nodes) {
		if err != nil {
			if !errors.Is(err, cluster.ErrUnreachable) || step != 4 {
				t.Fatalf("step %d: %v", step, err)
			}
			step++
			refuse.Store(false)
			continue
		}
		last = gpus(state)
		switch step {
		case 0:
			want(map[string]string{"gpu-1": "8"})
		case 1:
			want(map[string]string{"gpu-1": "8", "gpu-2": "4"})
			go func() { events <- nil; events <- nodeEvent("DELETED", "gpu-2", "1002", "") }() // the server ends the watch
		case 2:
			want(map[string]string{"gpu-1": "8"})
			go func() { events <- nodeEvent("MODIFIED", "gpu-1", "1003", "7") }()
		case 3:
			want(map[string]string{"gpu-1": "7"})
			refuse.Store(true)
			go func() { events <- nil }()
		case 5: // it is back, with an older backup
			want(map[string]string{"gpu-1": "8"})
			go func() {
				events <- nodeEvent("MODIFIED", "gpu-1", "1004", "6")
			}()
		case 6:
			want(map[string]string{"gpu-1": "6"})
			// the version is too old: a new list, which says 8 again
			go func() {
				events <- object{"type": "ERROR", "object": object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}}
			}()
		case 7:
			want(map[string]string{"gpu-1": "8"})
			cancel()
		}
		step++
	}
	if step != 8 {
		t.Fatalf("ended after step %d of 8 with %v", step, last)
	}
	resumed := 0
	for _, r := range s.Requests() {
		if r == "GET /api/v1/nodes?allowWatchBookmarks=true&resourceVersion=1001&timeoutSeconds=290&watch=true" {
			resumed++
		}
	}
	if resumed == 0 {
		t.Errorf("no watch resumed at the version of the last event: %v", s.Requests())
	}
}

func TestWatchTakesPodsOfANewGPUNode(t *testing.T) {
	events := make(chan object)
	s := &clustertest.Server{Before: func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/nodes" && r.URL.Query().Get("watch") == "true" {
			w.Header().Set("Content-Type", "application/json")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return true
		}
		return watched(events, new(atomic.Bool))(w, r)
	}}
	s.Add(t, "/api/v1/nodes", object{"metadata": object{"name": "new"}}).Add(t, "/api/v1/pods", pod("web", "shop", "new", "")).Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go func() {
		select {
		case events <- nodeEvent("MODIFIED", "new", "1001", "1"):
		case <-ctx.Done():
		}
	}()
	for state, err := range open(t, s).Watch(ctx, cluster.Nodes, cluster.Pods) {
		if err != nil {
			t.Fatal(err)
		}
		if len(state.Pods) == 1 {
			return
		}
	}
	t.Fatal("the pod of the new GPU node never came")
}

func TestWatchTriesWhatIsMissing(t *testing.T) {
	if testing.Short() {
		t.Skip("waits 5 s between two tries")
	}
	s := &clustertest.Server{}
	var installed atomic.Bool
	s.Before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/apis/nvidia.com/v1/clusterpolicies" && installed.Load() {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"ClusterPolicyList","apiVersion":"nvidia.com/v1","metadata":{"resourceVersion":"5"},"items":[{"kind":"ClusterPolicy","apiVersion":"nvidia.com/v1","metadata":{"name":"cluster-policy"}}]}`)
			return true
		}
		return false
	}
	s.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for state, err := range open(t, s).Watch(ctx, cluster.ClusterPolicies) {
		if err != nil {
			t.Fatal(err)
		}
		if state.Lacks(cluster.ClusterPolicies) == nil && len(state.ClusterPolicies) == 1 {
			return
		}
		installed.Store(true)
	}
	t.Fatal("the CRD that was installed was never seen")
}

func TestWatchOfNoServerEndsWithItsError(t *testing.T) {
	client, err := cluster.Open(cluster.Options{Kubeconfig: clustertest.Kubeconfig(t, "http://127.0.0.1:1")})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range client.Watch(t.Context(), cluster.Nodes) {
		n++
		if !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("got %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d answers", n)
	}
}
