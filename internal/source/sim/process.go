package sim

import (
	"fmt"
	"math"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// firstPID is the process id of the node's first pod; each has one process.
const firstPID = 4000

// A part is what one pod has of its slot at a knot.
type part struct{ graphics, memory float64 }

// divide gives every pod its part of a slot on which they together want more
// than there is, or all that they want.
func (s *slot) divide(wanted []part, got *levels, ahead bool) {
	var sum part
	for _, w := range wanted {
		sum.graphics += w.graphics
		sum.memory += w.memory
	}
	for i, w := range wanted {
		p := part{ratioOf(w.graphics, sum.graphics) * got[levelGraphics], ratioOf(w.memory, sum.memory) * got[levelMemory]}
		if ahead {
			s.pods[i].to = p
		} else {
			s.pods[i].from = p
		}
	}
}

func ratioOf(part, sum float64) float64 {
	if sum == 0 {
		return 0
	}
	return part / sum
}

// errNoBusy is what NVML says of the processes of MIG devices.
var errNoBusy = fmt.Errorf("sim: the utilisation of processes under MIG: %w", gpu.ErrNotSupported)

// readProcesses reports the processes of the rows that were asked for, as NVML
// does: busy in whole percent, but not under MIG, and memory in bytes.
func (s *Session) readProcesses(b *gpu.Batch, now int64) {
	w := s.src.world
	x := float64(w.at-w.t0) / float64(w.t1-w.t0)
	for row := range min(len(b.WantProcesses), len(s.views)) {
		v := &s.views[row]
		if !b.WantProcesses[row] || s.down[row] {
			continue
		}
		place := v.slot
		switch {
		case v.dev.Entity.Kind == gpu.KindGPU && !v.gpu.cut:
			place = &v.gpu.slots[0]
		case place == nil:
			b.Fail(row, gpu.FieldProcesses, gpu.ErrNotSupported)
			continue
		default:
			b.Fail(row, gpu.FieldProcessBusy, errNoBusy)
		}
		pods := place.pods
		for i := range place.inner {
			pods = append(slices.Clip(pods), place.inner[i].pods...)
		}
		for _, p := range pods {
			at := func(from, to float64) float64 { return from + (to-from)*x }
			process := gpu.Process{
				Row: row, PID: firstPID + uint32(p.index), Time: now,
				Memory: gpu.Int(int64(at(p.from.memory, p.to.memory)) << 20),
			}
			if v.slot == nil {
				process.Busy = gpu.Float(math.Round(100*at(p.from.graphics, p.to.graphics)) / 100)
			}
			b.Processes = append(b.Processes, process)
		}
	}
}

// PodOf returns the UID of the pod that a simulated process belongs to, "" for
// one of the host and for ids that no process has.
func (s *Source) PodOf(pid uint32) (string, error) {
	if pid < firstPID || int(pid-firstPID) >= len(s.uids) {
		return "", nil
	}
	return s.uids[pid-firstPID], nil
}

// podUID returns the UID of a pod, "" for a process of the host.
func (w *world) podUID(p *podSpec) string {
	if p.Host {
		return ""
	}
	return uuid("", w.podKey(p))
}

func (w *world) podKey(p *podSpec) uint64 { return keyOf(w.seed, p.Namespace+"/"+p.Pod) }
