package dcgm

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// How long the engine keeps the samples of fields of which every one is read:
// long enough for Reads that come late. Events are rare and must not be lost,
// so that their number has no limit; bursts are many and have both limits.
const (
	minKeepEvents      = 5 * time.Minute
	keepEventIntervals = 10

	minKeepBursts      = 10 * time.Second
	keepBurstIntervals = 3    // collection intervals
	maxKeepBursts      = 6000 // a minute of samples 10 ms apart
)

// retention returns how long the engine is to keep samples, and how many of a
// field; zero is no limit.
func (s *Session) retention(key sampling) (age time.Duration, samples int) {
	switch {
	case key.events:
		return max(minKeepEvents, keepEventIntervals*key.interval), 0
	case key.burst:
		age = max(minKeepBursts, keepBurstIntervals*max(s.plan.Interval, key.interval))
		return age, int(min(age/max(key.interval, 1)+keepSamples, maxKeepBursts))
	default:
		return 0, keepSamples
	}
}

// firstSample returns where the first read of every sample begins, in the
// engine's microseconds: with events all that the engine still has, with
// bursts what is sampled for this session, since another client of the engine
// may have had the field sampled for long.
func (s *Session) firstSample(key sampling) int64 {
	if !key.burst {
		return 0
	}
	begin := time.Now().Add(-key.interval)
	if s.clock.foreign {
		begin = begin.Add(-tolerance) // by which its clock may be behind without being corrected
	}
	return max(0, (begin.UnixNano()-s.clock.offset)/1000)
}

// newestSamples remembers the newest sample of each field of which every
// sample is asked for. Where none came since the last Read, it is reported
// again for as long as it is current: what such a field tells is a state too
// (a clock event reason, the power of now), and sampling and reading do not
// keep step. Whoever counts samples tells a repeated one by its time.
type newestSamples struct {
	slots  []int32 // by plan index: the field's place in a row, -1 for none
	width  int     // places in a row
	newest []gpu.Sample
	read   []uint32 // in which complete each of newest came
	reads  uint32
}

// set makes room for the fields of a plan.
func (n *newestSamples) set(plan *gpu.Plan, rows int) {
	*n = newestSamples{slots: make([]int32, len(plan.Fields))}
	for f := range plan.Fields {
		n.slots[f] = -1
		if plan.Fields[f].EverySample() {
			n.slots[f] = int32(n.width)
			n.width++
		}
	}
	n.newest = make([]gpu.Sample, rows*n.width)
	n.read = make([]uint32, rows*n.width)
}

// shift corrects the times of what is remembered.
func (n *newestSamples) shift(by int64) {
	for i := range n.newest {
		n.newest[i].Time += by
	}
}

// forget forgets the samples of a watch.
func (n *newestSamples) forget(w *watch) {
	for _, row := range w.group.rows {
		for _, f := range w.fields {
			n.newest[row*n.width+int(n.slots[f])] = gpu.Sample{}
		}
	}
}

// complete remembers the samples of a watch from start on, and appends those
// of before that are current at the moment now and have no newer one.
func (n *newestSamples) complete(w *watch, b *gpu.Batch, start int, now int64) {
	n.reads++
	fresh := 0
	// From the newest on, so that each place is written once.
	for i := len(b.Samples) - 1; i >= start; i-- {
		x := &b.Samples[i]
		place := x.Row*n.width + int(n.slots[x.Field])
		if n.read[place] != n.reads {
			n.read[place] = n.reads
			n.newest[place] = *x
			fresh++
		}
	}
	if fresh == len(w.group.rows)*len(w.fields) {
		return
	}
	oldest := now - int64(maxAgeIntervals*w.interval)
	for _, row := range w.group.rows {
		for _, f := range w.fields {
			place := row*n.width + int(n.slots[f])
			if last := &n.newest[place]; n.read[place] != n.reads && last.Time >= oldest && !last.Value.IsAbsent() {
				b.Samples = append(b.Samples, *last)
			}
		}
	}
}
