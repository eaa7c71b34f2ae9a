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

// Fills returns the answers of a kubelet that has just started and that knows pods again one by
// one, in any order: empty ones, as many as there are turns before the first pod, and listings that
// grow, each in an order of its own. The last one is whole.
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

// shuffled returns the pods of some indices in any order.
func shuffled(random *rand.Rand, pods []*v1.PodResources, indices []int) []*v1.PodResources {
	var out []*v1.PodResources
	for _, i := range random.Perm(len(indices)) {
		out = append(out, pods[indices[i]])
	}
	return out
}

// A Moment is what a real kubelet did at a time of its restart.
type Moment struct {
	At time.Duration // since the recording began
	// Event is "kubelet ended" or "kubelet started", or empty for an answer.
	Event string
	// Refused reports that nothing answered; else Pods are the answer.
	Refused bool
	Pods    []*v1.PodResources
}

// Timeline returns what a real kubelet did while it restarted, as recorded. It ends the test where
// the recording does not lie beside the repository.
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
		// An answer is a list of pods, or the text of an error.
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
