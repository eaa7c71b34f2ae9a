package accounting

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

const bytesPerMiB = 1 << 20

// claims sums the figures of processes: their utilization and their memory.
type claims [memory + 1]struct {
	sum        float64
	incomplete bool // at least one process does not report it
}

// claimNames lists the label values of the measures in claims.
var claimNames = [memory + 1]string{utilization: "utilization", memory: "memory"}

func (c *claims) add(p *gpu.Process) {
	for m, v := range [...]gpu.Value{utilization: p.Busy, memory: p.Memory} {
		n, known := v.Number()
		c[m].sum += max(n, 0)
		c[m].incomplete = c[m].incomplete || !known
	}
}

// readProcesses adds the processes to the claims of their pods, or records why the claims are unknown.
func (s *session) readProcesses() {
	b := s.cycle.Batch
	for i := range b.Faults {
		f := &b.Faults[i]
		if f.Part != gpu.PartProcesses && f.Part != gpu.PartProcessBusy && f.Part != gpu.PartEntity {
			continue // most faults are about a field
		}
		for _, e := range s.entities {
			switch {
			case f.Row != e.row && f.Row != gpu.AllRows:
			case f.Part == gpu.PartProcessBusy:
				e.noBusy = gpu.Reason(f.Err)
			default:
				e.noProcesses = gpu.Reason(f.Err)
			}
		}
	}
	for _, u := range b.Utilizations {
		if e := s.byRow[u.Row]; e != nil && e.shared {
			e.mean = u.Busy
		}
	}
	for i := range b.Processes {
		p := &b.Processes[i]
		// Always look up: the resolver detects reused PIDs this way.
		uids, err := s.podOf(p.PID)
		switch e := s.byRow[p.Row]; {
		case e == nil || !e.shared || e.noProcesses != "":
		case s.cycle.Now.UnixNano()-p.Time > int64(s.maxGap): // the mean covers the same time, so it is stale too
			e.noProcesses, e.mean = snapshot.DroppedStale, gpu.Value{}
		case err != nil:
			e.noPods = gpu.Reason(err) // without this process's pod, the other shares would look complete
		default:
			e.claims.add(p)
			// Pods can be nested if a pod runs a node. Then the outermost pod that owns the entity counts.
			if i := slices.IndexFunc(uids, func(uid string) bool { return e.byUID[uid] != nil }); i >= 0 {
				e.byUID[uids[i]].claims.add(p)
			}
		}
	}
	for _, e := range s.entities { // ignore utilization reports of entities that could not be read: they are stale
		if err := s.cycle.Down(e.row); err != nil {
			e.noProcesses, e.mean = cmp.Or(e.noProcesses, gpu.Reason(err)), gpu.Value{}
		}
	}
}

// divide sets the owners' shares of an entity's utilization and memory, and the remainder. If a share is unknown, so is
// the remainder.
func (s *Accountant) divide(e *sharedDevice) {
	if e.partitioned {
		return
	}
	var missing string
	e.device, missing = s.utilization(e)
	var used gpu.Value
	if mib, known := s.cycle.Value(catalog.FBUsed, e.row).Number(); known {
		used = numberOf(mib * bytesPerMiB)
	}
	if e.device.IsAbsent() && len(e.accounts) > 0 && e.mean.IsAbsent() {
		s.miss(whatUtilization, cmp.Or(missing, snapshot.ReasonNoData))
	}
	switch {
	case len(e.accounts) == 0:
	case e.shared:
		s.divideShared(e, used)
	default: // the only owner gets everything
		now := &e.accounts[0].now
		now[utilization], now[memory] = e.device, used
	}
	e.setRest(utilization, e.device)
	e.setRest(memory, used)
}

// setRest sets the remainder of a device's value that no account has, if every account's share is known. Rounding never
// makes it negative.
func (e *sharedDevice) setRest(m measure, device gpu.Value) {
	rest, known := device.Number()
	for _, a := range e.accounts {
		n, ok := a.now[m].Number()
		rest, known = rest-n, known && ok
	}
	if known {
		e.totals.now[m] = numberOf(max(rest, 0))
	}
}

// utilization returns the entity's own utilization, 0 to 1, or why it is absent.
func (s *session) utilization(e *sharedDevice) (busy gpu.Value, missing string) {
	if n, ok := s.cycle.Value(catalog.GPUUtil, e.row).Number(); ok && !e.instance {
		return gpu.Float(min(n/100, 1)), ""
	}
	if n, ok := s.cycle.Value(catalog.ProfGREngineActive, e.row).Number(); ok {
		return gpu.Float(min(n, 1)), ""
	}
	if e.instance {
		return gpu.Value{}, s.cycle.Missing(catalog.ProfGREngineActive, e.row)
	}
	return gpu.Value{}, s.cycle.Missing(catalog.GPUUtil, e.row)
}

// divideShared divides the usage of a shared entity among its owners, in proportion to the work of their processes.
func (s *Accountant) divideShared(e *sharedDevice, used gpu.Value) {
	switch {
	case e.noProcesses != "":
		s.miss(whatProcesses, e.noProcesses)
		return
	case e.noPods != "":
		s.miss(whatPodOfProcess, e.noPods)
		return
	case e.noBusy != "":
		s.miss(whatProcessUtilization, e.noBusy)
	default:
		e.device = e.interval()
		s.distribute(e, utilization, e.device, whatProcessUtilization)
	}
	s.distribute(e, memory, used, whatProcessMemory)
}

// interval returns the utilization of an entity over the interval that its processes report. If the source does not
// report one, it uses the sampled utilization. A sample of one moment can be less than the processes' sum; then the sum
// counts.
func (e *sharedDevice) interval() gpu.Value {
	if !e.mean.IsAbsent() {
		return e.mean
	}
	util, known := e.device.Number()
	if !known || e.instance { // the profiling counters of an instance already cover the interval
		return e.device
	}
	return gpu.Float(max(util, min(e.claims[utilization].sum, 1)))
}

// distribute gives each owner its claim to a device's value, if both are known. Claims that exceed the value are scaled
// down. Processes overlap under MPS, the driver rounds, and samples of two moments can add up to more.
func (s *Accountant) distribute(e *sharedDevice, m measure, device gpu.Value, lack string) {
	most, known := device.Number()
	if !known {
		return
	}
	scale := 1.0
	if sum := e.claims[m].sum; sum > most {
		scale = most / sum
		s.scaled.WithLabelValues(claimNames[m]).Inc()
	}
	for _, a := range e.accounts {
		switch {
		case a.uid == "":
			s.miss(whatPodUID, snapshot.ReasonNoData)
		case a.claims[m].incomplete:
			s.miss(lack, snapshot.ReasonNoData)
		default:
			a.now[m] = numberOf(a.claims[m].sum * scale)
		}
	}
}

// numberOf returns n as a Value: an integer if n is a whole number, so that the page shows byte counts with all digits.
func numberOf(n float64) gpu.Value {
	if n == math.Trunc(n) && n < 1<<53 {
		return gpu.Int(int64(n))
	}
	return gpu.Float(n)
}
