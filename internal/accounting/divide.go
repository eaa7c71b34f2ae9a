package accounting

import (
	"cmp"
	"math"

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

// claimed returns the names of the measures in claims.
func claimed() []string { return []string{utilization: "utilization", memory: "memory"} }

func (c *claims) add(p *gpu.Process) {
	for m, v := range [...]gpu.Value{utilization: p.Busy, memory: p.Memory} {
		n, known := v.Number()
		c[m].sum += max(n, 0)
		c[m].incomplete = c[m].incomplete || !known
	}
}

// readProcesses adds the processes to the claims of their pods, or records why the claims are unknown.
func (s *session) readProcesses(c *snapshot.Cycle) {
	b := c.Batch
	for i := range b.Faults {
		s.applyFault(&b.Faults[i])
	}
	for i := range b.Utilizations {
		if e := s.sharedEntity(b.Utilizations[i].Row); e != nil {
			e.mean = b.Utilizations[i].Busy
		}
	}
	for i := range b.Processes {
		p := &b.Processes[i]
		// Always look up: the resolver detects reused PIDs this way.
		uids, err := s.podOf(p.PID)
		switch e := s.sharedEntity(p.Row); {
		case e == nil || e.noProcesses != "":
		case c.Now.UnixNano()-p.Time > int64(s.maxGap): // the mean is of the same time, so it is stale too
			e.noProcesses, e.mean = snapshot.DroppedStale, gpu.Value{}
		case err != nil:
			e.noPods = err // without this process's pod, the other shares would look complete
		default:
			e.addProcess(p, uids)
		}
	}
	for i := range s.entities { // ignore utilization reports of entities that could not be read: they are stale
		e := &s.entities[i]
		if err := c.Down(e.row); err != nil {
			e.noProcesses, e.mean = cmp.Or(e.noProcesses, gpu.Reason(err)), gpu.Value{}
		}
	}
}

// sharedEntity returns the entity of a row if it has several owners, or nil.
func (s *session) sharedEntity(row int) *sharedDevice {
	if i, ok := s.at[row]; ok && s.entities[i].shared {
		return &s.entities[i]
	}
	return nil
}

func (s *session) applyFault(f *gpu.Fault) {
	entities := s.entities
	if f.Row != gpu.AllRows {
		i, ok := s.at[f.Row]
		if !ok {
			return
		}
		entities = entities[i : i+1]
	}
	for i := range entities {
		switch e := &entities[i]; f.Part {
		case gpu.PartProcessBusy:
			e.noBusy = f.Err
		case gpu.PartProcesses, gpu.PartEntity:
			e.noProcesses = gpu.Reason(f.Err)
		}
	}
}

// addProcess adds a process to the claims of the entity and of the owning pod. Pods can be nested if a pod runs a node;
// then the outermost pod that owns the entity counts.
func (e *sharedDevice) addProcess(p *gpu.Process, uids []string) {
	e.claims.add(p)
	for _, uid := range uids {
		if a := e.byUID[uid]; a != nil {
			a.claims.add(p)
			return
		}
	}
}

// divide sets the owners' shares of an entity's utilization and memory, and the remainder. If a share is unknown, so is
// the remainder.
func (s *Accountant) divide(c *snapshot.Cycle, e *sharedDevice) {
	if e.partitioned {
		return
	}
	e.device = s.utilization(c, e)
	mib, known := s.value(c, catalog.FBUsed, e.row)
	var used gpu.Value
	if known {
		used = numberOf(mib * bytesPerMiB)
	}
	if e.device.IsAbsent() && len(e.accounts) > 0 && e.mean.IsAbsent() {
		s.miss(whatUtilization, cmp.Or(s.whyMissing(c, e), snapshot.ReasonNoData))
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

// utilization returns the entity's own utilization, 0 to 1. It is absent if the entity was not read.
func (s *session) utilization(c *snapshot.Cycle, e *sharedDevice) gpu.Value {
	if !e.instance {
		if n, ok := s.value(c, catalog.GPUUtil, e.row); ok {
			return gpu.Float(min(n/100, 1))
		}
	}
	if n, ok := s.value(c, catalog.ProfGREngineActive, e.row); ok {
		return gpu.Float(min(n, 1))
	}
	return gpu.Value{}
}

// value returns the value of an input in a row, if the row was read.
func (s *session) value(c *snapshot.Cycle, input gpu.FieldID, row int) (float64, bool) {
	if c.Down(row) != nil {
		return 0, false
	}
	return c.Value(input, row).Number()
}

// whyMissing returns why an entity has no utilization.
func (s *session) whyMissing(c *snapshot.Cycle, e *sharedDevice) string {
	if e.instance {
		return c.Missing(catalog.ProfGREngineActive, e.row)
	}
	return c.Missing(catalog.GPUUtil, e.row)
}

// divideShared divides the usage of a shared entity among its owners, in proportion to the work of their processes.
func (s *Accountant) divideShared(e *sharedDevice, used gpu.Value) {
	switch {
	case e.noProcesses != "":
		s.miss(whatProcesses, e.noProcesses)
		return
	case e.noPods != nil:
		s.miss(whatPodOfProcess, gpu.Reason(e.noPods))
		return
	case e.noBusy != nil:
		s.miss(whatProcessUtilization, gpu.Reason(e.noBusy))
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
		s.scaled.WithLabelValues(claimed()[m]).Inc()
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
