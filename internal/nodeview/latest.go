package nodeview

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// spacing is how often a document is made while no reader is there, so that short collection
	// intervals do not pay for it.
	spacing = 10 * time.Second
	// watching is for how long after a request every snapshot is made a document.
	watching = time.Minute
)

// Latest keeps the document of the newest snapshot. Its zero value holds none. Any goroutine may
// call its methods.
type Latest struct {
	// Exporter and Host go into every document. Set them before the first Publish.
	Exporter, Host string

	mu       sync.Mutex
	document []byte    // JSON, never written to again
	state    state     // of the snapshot that it is of
	made     time.Time // when
	valid    time.Duration
	request  time.Time // the last
}

// A state is what a document must not be late to say: which devices there are, and whether they are
// read.
type state struct {
	topology *gpu.Topology
	reason   string // why there is no data
	down     int    // devices that are not read
}

func stateOf(s *gpu.Snapshot) state {
	now := state{topology: s.Topology, reason: gpu.Reason(s.Health.Err)}
	for i := range s.Health.Entities {
		if s.Health.Entities[i].Err != nil {
			now.down++
		}
	}
	return now
}

// Publish takes note of s, which is valid during the call only. It makes a document of it while
// requests come, when the state changes, and every ten seconds otherwise.
func (l *Latest) Publish(s *gpu.Snapshot) {
	now, state := time.Now(), stateOf(s)
	l.mu.Lock()
	due := l.document == nil || state != l.state || now.Sub(l.request) < watching || now.Sub(l.made) >= spacing
	l.mu.Unlock()
	if !due {
		return
	}
	d := New(s)
	d.Exporter, d.Host = l.Exporter, l.Host
	text, err := json.Marshal(d)
	if err != nil { // no type of a Document and no value in it is unknown to JSON
		return
	}
	l.mu.Lock()
	l.document, l.state, l.made, l.valid = text, state, now, s.ValidFor
	l.mu.Unlock()
}

// JSON returns {"ageSeconds": …, "stale": …, "node": Document}, or nil before there is a document.
// Age is that of the document by the monotonic clock; it is stale where the collector was to have a
// newer snapshot by now and has none.
func (l *Latest) JSON() []byte {
	now := time.Now()
	l.mu.Lock()
	document, age, valid := l.document, now.Sub(l.made), l.valid
	l.request = now
	l.mu.Unlock()
	if document == nil {
		return nil
	}
	b := make([]byte, 0, len(document)+64)
	b = append(b, `{"ageSeconds":`...)
	b = strconv.AppendFloat(b, age.Seconds(), 'f', 3, 64)
	b = append(b, `,"stale":`...)
	b = strconv.AppendBool(b, valid > 0 && age > valid+spacing)
	b = append(b, `,"node":`...)
	b = append(b, document...)
	return append(b, '}')
}
