package kubelet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// Fills returns the replies of a kubelet that has just started. It learns about its pods one by one, in random order.
// The first replies list no pods; empty is their number. The last reply lists all pods. Each list is in random order.
func Fills(random *rand.Rand, empty int, pods ...*v1.PodResources) []Reply {
	var replies []Reply
	for range empty {
		replies = append(replies, Lists())
	}
	order := random.Perm(len(pods))
	for n := 1; n < len(order); n += 1 + random.IntN(3) {
		replies = append(replies, Lists(shuffled(random, pods, order[:n])...))
	}
	return append(replies, Lists(shuffled(random, pods, order)...))
}

// shuffled returns the pods at the indices in random order.
func shuffled(random *rand.Rand, pods []*v1.PodResources, indices []int) []*v1.PodResources {
	var out []*v1.PodResources
	for _, i := range random.Perm(len(indices)) {
		out = append(out, pods[indices[i]])
	}
	return out
}

// Moment is one event or reply of a real kubelet during a restart.
type Moment struct {
	At time.Duration // since the recording started
	// Event is "kubelet ended", "kubelet started", or empty for a reply.
	Event string
	// Refused means that the call failed. Otherwise, if Event is empty, Pods is the reply.
	Refused bool
	Pods    []*v1.PodResources
}

// Timeline returns what a real kubelet did during a recorded restart. If the recording is missing, it skips the test or
// fails it, like material.Path.
func Timeline(t testing.TB, resource string) []Moment {
	t.Helper()
	const name = "data/podresources/kubelet-restart-timeline.jsonl"
	var moments []Moment
	lines := bufio.NewScanner(bytes.NewReader(material.Read(t, name)))
	for lines.Scan() {
		var line struct {
			Ms    int64
			Event string
			List  json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := Moment{At: time.Duration(line.Ms) * time.Millisecond, Event: line.Event}
		var pods []struct {
			N string
			D []string
		}
		// A reply is a list of pods or the text of an error.
		if line.List != nil && json.Unmarshal(line.List, &pods) != nil {
			m.Refused = true
		}
		for _, p := range pods {
			m.Pods = append(m.Pods, Pod("default/"+p.N, Container("main", resource, p.D...)))
		}
		moments = append(moments, m)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return moments
}
