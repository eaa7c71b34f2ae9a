package sim

import (
	"fmt"
	"math"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// firstPID is the process ID of the node's first pod. Each pod has one process.
const firstPID = 4000

// errNoBusy is what NVML returns for the utilization of processes on MIG devices.
var errNoBusy = fmt.Errorf("sim: the utilization of processes under MIG: %w", gpu.ErrNotSupported)

// An activity holds the busy seconds of a GPU and its pods since the start of the simulation, and their means over the
// latest step of advance, 0 to 1. The first element is that of the GPU.
type activity struct {
	at    int64
	busy  []float64
	means []float64
}

// advance advances to the current time of the world. The means of a step of zero length are the current values.
func (a *activity) advance(w *world, s *slot) {
	if a.at == 0 {
		a.busy, a.means = make([]float64, 1+len(s.pods)), make([]float64, 1+len(s.pods))
	}
	seconds := float64(w.at-a.at) / 1e9
	step := func(i int, k *track) {
		total := k.total[levelGraphics]
		a.means[i] = min(k.now[levelGraphics], 1)
		if a.at != 0 && seconds > 0 {
			a.means[i] = min((total-a.busy[i])/seconds, 1)
		}
		a.busy[i] = total
	}
	step(0, &s.track)
	for i, p := range s.pods {
		step(1+i, &p.track)
	}
	a.at = w.at
}

// readProcesses reports the processes of the requested rows like NVML: memory in bytes and, outside of MIG, utilization
// in whole percent since the previous Read. It also reports the GPU's mean utilization over that time, since the
// utilization field is a momentary value.
func (s *Session) readProcesses(req gpu.ReadRequest, b *gpu.Batch, now int64) {
	for row := range s.views {
		v, active := &s.views[row], &s.active[row]
		whole := v.dev.Entity.Kind == gpu.KindGPU && v.slot != nil
		if whole {
			active.advance(s.src.world, v.slot)
		}
		switch {
		case !req.WantsProcesses(row) || s.down[row]:
			continue
		case whole:
			b.Utilizations = append(b.Utilizations, gpu.Utilization{Row: row, Busy: gpu.Float(active.means[0])})
		case v.slot == nil:
			b.FailPart(row, gpu.PartProcesses, gpu.ErrNotSupported)
			continue
		default:
			b.FailPart(row, gpu.PartProcessBusy, errNoBusy)
		}
		for i, p := range v.slot.pods {
			memory := gpu.Int(int64(p.now[levelMemory]) << 20)
			process := gpu.Process{Row: row, PID: firstPID + uint32(p.index), Time: now, Memory: memory}
			if whole {
				process.Busy = gpu.Float(math.Round(100*active.means[1+i]) / 100)
			}
			b.Processes = append(b.Processes, process)
		}
	}
}

// PodOf returns the UID of the pod of a simulated process. It returns nil for processes of the host and for unknown
// IDs.
func (s *Source) PodOf(pid uint32) ([]string, error) {
	if pid < firstPID || int(pid-firstPID) >= len(s.node.Pods) || s.node.Pods[pid-firstPID].Host {
		return nil, nil
	}
	return []string{s.world.podUID(&s.node.Pods[pid-firstPID])}, nil
}

func (w *world) podUID(p *podSpec) string { return uuid("", w.podKey(p)) }

func (w *world) podKey(p *podSpec) uint64 { return keyOf(w.seed, p.Namespace+"/"+p.Pod) }
