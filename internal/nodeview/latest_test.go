package nodeview_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/nodeview"
)

type answer struct {
	AgeSeconds float64
	Stale      bool
	Node       nodeview.Document
}

func decode(t *testing.T, text []byte) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return a
}

func snapshotOf(topology *gpu.Topology, err error) *gpu.Snapshot {
	return &gpu.Snapshot{
		Time: time.Now(), ValidFor: 5 * time.Second, Topology: topology,
		Health: gpu.Health{Err: err, Entities: make([]gpu.EntityHealth, len(topology.Devices))},
	}
}

func TestLatest(t *testing.T) {
	topology := gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-1"}})
	synctest.Test(t, func(t *testing.T) {
		l := &nodeview.Latest{Exporter: "v1", Host: "node-7"}
		if got := l.JSON(); got != nil {
			t.Fatalf("before the first snapshot: %s", got)
		}
		time.Sleep(2 * time.Minute) // so that the request above is no longer near
		l.Publish(snapshotOf(topology, nil))
		began := time.Now()

		// Without a reader, short intervals do not pay for documents, but a change of state shows at
		// once.
		time.Sleep(2 * time.Second)
		l.Publish(snapshotOf(topology, nil))
		lost := snapshotOf(topology, nil)
		lost.Health.Entities[0].Err = gpu.ErrLost
		a := decode(t, l.JSON())
		if !a.Node.Time.Equal(began) || a.AgeSeconds != 2 || a.Stale {
			t.Errorf("two seconds later: %+v", a)
		}
		if a.Node.Exporter != "v1" || a.Node.Host != "node-7" || a.Node.Version != nodeview.Version {
			t.Errorf("document %+v", a.Node)
		}
		time.Sleep(2 * time.Minute)
		l.Publish(snapshotOf(topology, nil))
		time.Sleep(time.Second)
		l.Publish(lost)
		if a := decode(t, l.JSON()); a.Node.Entities[0].Problem == nil || a.Node.Entities[0].Problem.Reason != "lost" || a.AgeSeconds != 0 {
			t.Errorf("a GPU that was lost a moment ago: %+v", a)
		}

		// With a reader, every snapshot is a document.
		time.Sleep(time.Second)
		l.Publish(lost)
		if a := decode(t, l.JSON()); a.AgeSeconds != 0 {
			t.Errorf("a reader gets what is %v s old", a.AgeSeconds)
		}

		// A collection that ends no cycle is stale.
		time.Sleep(time.Minute)
		if a := decode(t, l.JSON()); !a.Stale || a.AgeSeconds != 60 {
			t.Errorf("a minute without a snapshot: %+v", a)
		}
	})
}

func TestReasonsOfTheNode(t *testing.T) {
	for _, err := range []error{gpu.ErrUnavailable, gpu.ErrTimeout} {
		d := nodeview.New(&gpu.Snapshot{Health: gpu.Health{Err: err}})
		if d.Problem == nil || d.Problem.Reason != gpu.Reason(err) || d.Entities == nil {
			t.Errorf("%v: %+v", err, d)
		}
	}
}
