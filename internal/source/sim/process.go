package sim

import (
	"fmt"
	"math"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// firstPID is the process ID of the node's first pod. Each pod has one process.
const firstPID = 4000

// A part is one pod's share of its slot at a knot: a fraction of time, and memory in MiB.
type part struct{ graphics, memory float64 }

// divide gives every pod its share of a slot. If pods request more than there is, each gets the same fraction of its
// request.
func (s *slot) divide(requested []part, got *levels, ahead bool) {
	var sum part
	for _, w := range requested {
		sum.graphics += w.graphics
		sum.memory += w.memory
	}
	for i, w := range requested {
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

// errNoBusy is what NVML returns for the utilization of processes on MIG devices.
var errNoBusy = fmt.Errorf("sim: the utilization of processes under MIG: %w", gpu.ErrNotSupported)

// An activity holds the busy seconds of a GPU and its pods since the start of the simulation.
type activity struct {
	at     int64
	device float64
	pods   []float64
	// Means over the latest step of advance, 0 to 1.
	mean  float64
	means []float64
}

// advance advances to the current time of the world. The means of a step of zero length are the current values.
func (a *activity) advance(w *world, s *slot) {
	x, length := float64(w.at-w.t0)/float64(w.t1-w.t0), float64(w.t1-w.t0)/1e9
	first := len(a.pods) != len(s.pods)
	if first {
		a.pods, a.means = make([]float64, len(s.pods)), make([]float64, len(s.pods))
	}
	seconds := float64(w.at-a.at) / 1e9
	mean := func(now float64, total, before float64) float64 {
		if first || a.at == 0 || seconds <= 0 {
			return now
		}
		return (total - before) / seconds
	}
	total := s.track.total[levelGraphics]
	a.mean = mean(s.now[levelGraphics], total, a.device)
	a.device = total
	for i, p := range s.pods {
		total := p.busySeconds(x, length)
		a.means[i] = mean(p.from.graphics+(p.to.graphics-p.from.graphics)*x, total, a.pods[i])
		a.pods[i] = total
	}
	a.at = w.at
}

// readProcesses reports the processes of the requested rows like NVML: memory in bytes and, outside of MIG, utilization
// in whole percent since the previous Read. It also reports the GPU's mean utilization over that time, since the
// utilization field is a momentary value.
func (s *Session) readProcesses(req gpu.ReadRequest, b *gpu.Batch, now int64) {
	w := s.src.world
	x := float64(w.at-w.t0) / float64(w.t1-w.t0)
	for row := range s.views {
		v := &s.views[row]
		whole := v.dev.Entity.Kind == gpu.KindGPU && !v.gpu.partitioned
		if whole {
			s.active[row].advance(w, &v.gpu.slots[0])
		}
		if !req.WantsProcesses(row) || s.down[row] {
			continue
		}
		place := v.slot
		switch {
		case whole:
			place = &v.gpu.slots[0]
			b.Utilizations = append(b.Utilizations, gpu.Utilization{Row: row, Busy: gpu.Float(min(s.active[row].mean, 1))})
		case place == nil:
			b.FailPart(row, gpu.PartProcesses, gpu.ErrNotSupported)
			continue
		default:
			b.FailPart(row, gpu.PartProcessBusy, errNoBusy)
		}
		for i, p := range place.pods {
			memory := p.from.memory + (p.to.memory-p.from.memory)*x
			process := gpu.Process{Row: row, PID: firstPID + uint32(p.index), Time: now, Memory: gpu.Int(int64(memory) << 20)}
			if whole {
				process.Busy = gpu.Float(math.Round(100*min(s.active[row].means[i], 1)) / 100)
			}
			b.Processes = append(b.Processes, process)
		}
	}
}

// PodOf returns the UID of the pod of a simulated process. It returns nil for processes of the host and for unknown
// IDs.
func (s *Source) PodOf(pid uint32) ([]string, error) {
	if pid < firstPID || int(pid-firstPID) >= len(s.uids) || s.uids[pid-firstPID] == "" {
		return nil, nil
	}
	return s.uids[pid-firstPID:][:1:1], nil
}

// podUID returns the UID of a pod, or "" for a process of the host.
func (w *world) podUID(p *podSpec) string {
	if p.Host {
		return ""
	}
	return uuid("", w.podKey(p))
}

func (w *world) podKey(p *podSpec) uint64 { return keyOf(w.seed, p.Namespace+"/"+p.Pod) }
