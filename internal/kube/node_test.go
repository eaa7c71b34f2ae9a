package kube_test

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
)

const deployLabel = "nvidia.com/gpu.deploy.dcgm-exporter"

func nodeWith(labels map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": "node-1", "labels": labels, "resourceVersion": "1"},
	}
}

// follow follows the label and returns the values that it got.
func follow(t *testing.T, c *kube.Client) (values <-chan string, stop func()) {
	t.Helper()
	followed := make(chan string, 16)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.FollowLabel(ctx, "node-1", deployLabel, func(v string) { followed <- v })
	}()
	return followed, func() { cancel(); <-done }
}

func next(t *testing.T, values <-chan string) string {
	t.Helper()
	got := ""
	until(t, "a value", func() bool {
		select {
		case got = <-values:
			return true
		default:
			return false
		}
	})
	return got
}

func TestLabelOfANode(t *testing.T) {
	s := newServer(t)
	s.put(nodesPath, nodeWith(map[string]any{deployLabel: "true"}))
	c, outcomes := s.client()
	values, stop := follow(t, c)
	want(t, "value at first", next(t, values), "true")
	until(t, "the watch", func() bool { return s.watched(nodesPath) })
	want(t, "selector of the list", s.selector("list", nodesPath), "metadata.name=node-1")
	want(t, "selector of the watch", s.selector("watch", nodesPath), "metadata.name=node-1")
	if err, ok := outcomes.of("nodes"); !ok || err != nil {
		t.Errorf("reported: %v, %v", err, ok)
	}

	s.send(nodesPath, "MODIFIED", nodeWith(map[string]any{deployLabel: "true", "other": "x"})) // says nothing new
	s.send(nodesPath, "MODIFIED", nodeWith(map[string]any{deployLabel: "paused-for-mig-change"}))
	want(t, "value when paused", next(t, values), "paused-for-mig-change")
	s.send(nodesPath, "MODIFIED", nodeWith(nil))
	want(t, "value without the label", next(t, values), "")
	s.send(nodesPath, "MODIFIED", nodeWith(map[string]any{deployLabel: "paused-for-driver-upgrade"}))
	want(t, "value when paused again", next(t, values), "paused-for-driver-upgrade")
	s.send(nodesPath, "DELETED", nodeWith(nil))
	want(t, "value of a node that is gone", next(t, values), "")
	stop()
	until(t, "the end of the watch", func() bool { return !s.watched(nodesPath) })
}

func TestLabelOfANodeThatMayNotBeSeen(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		t.Run(verb, func(t *testing.T) {
			s := newServer(t)
			s.put(nodesPath, nodeWith(map[string]any{deployLabel: "true"}))
			s.deny(verb, nodesPath, true)
			c, outcomes := s.client()
			values, stop := follow(t, c)
			defer stop()
			var denied *kube.Denied
			until(t, "the refusal", func() bool { err, _ := outcomes.of("nodes"); return errors.As(err, &denied) })
			want(t, "refusal", denied, &kube.Denied{Verb: verb, Resource: schema.GroupResource{Resource: "nodes"}})
			s.deny(verb, nodesPath, false)
			want(t, "value once it may be seen", next(t, values), "true")
		})
	}
}
