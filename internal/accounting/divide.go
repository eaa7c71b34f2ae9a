package accounting

import (
	"cmp"
	"math"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

const bytesPerMiB = 1 << 20

// readProcesses puts what processes did where their pods find it, and why it is not known.
func (s *session) readProcesses(c *snapshot.Cycle) {
	b := c.Batch
	clear(s.pods)
	for i := range s.entities {
		e := &s.entities[i]
		e.reading = reading{}
		for _, a := range e.accounts {
			a.use = use{}
		}
	}
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
		// Also where nothing is divided: an id that comes again is noticed by whose it was before.
		uids, err := s.podsOf(p.PID)
		switch e := s.sharedEntity(p.Row); {
		case e == nil || e.noProcesses != "":
		case c.Now.UnixNano()-p.Time > int64(s.maxGap): // so is what was reported beside it
			e.noProcesses, e.mean = snapshot.DroppedStale, gpu.Value{}
		case err != nil:
			e.noPods = err // the others' parts would look like all that there is
		default:
			e.addProcess(p, uids)
		}
	}
	for i := range s.entities { // what is reported of an entity that is not read is of an earlier time
		e := &s.entities[i]
		if err := c.Down(e.row); err != nil {
			e.noProcesses, e.mean = cmp.Or(e.noProcesses, gpu.Reason(err)), gpu.Value{}
		}
	}
}

// sharedEntity returns the entity of a row that is divided by its processes, nil for others.
func (s *session) sharedEntity(row int) *sharedDevice {
	if row < 0 || row >= len(s.at) || s.at[row] < 0 || !s.entities[s.at[row]].shared {
		return nil
	}
	return &s.entities[s.at[row]]
}

func (s *session) applyFault(f *gpu.Fault) {
	switch f.Field {
	case gpu.FieldProcesses, gpu.AllFields, gpu.FieldProcessBusy:
	default:
		return
	}
	for i := range s.entities {
		e := &s.entities[i]
		switch {
		case f.Row != e.row && f.Row != gpu.AllRows:
		case f.Field == gpu.FieldProcessBusy:
			e.noBusy = f.Err
		default:
			e.noProcesses = gpu.Reason(f.Err)
		}
	}
}

// podsOf returns the pods of a process, which is looked up once for all GPUs that it is on.
func (s *session) podsOf(pid uint32) ([]string, error) {
	if s.podOf == nil {
		return nil, gpu.ErrUnavailable
	}
	found, known := s.pods[pid]
	if !known {
		found.uids, found.err = s.podOf(pid)
		s.pods[pid] = found
	}
	return found.uids, found.err
}

// addProcess adds a process to the account of its pod.
func (e *sharedDevice) addProcess(p *gpu.Process, uids []string) {
	busy, hasBusy := p.Busy.Number()
	bytes, hasBytes := p.Memory.Number()
	busy, bytes = max(busy, 0), max(bytes, 0)
	e.busy, e.bytes = e.busy+busy, e.bytes+bytes
	// The outermost pod that owns the entity: a pod can be a node of pods, and names what is below it.
	for _, uid := range uids {
		if a := e.byUID[uid]; a != nil {
			a.busy, a.bytes = a.busy+busy, a.bytes+bytes
			a.noBusy, a.noBytes = a.noBusy || !hasBusy, a.noBytes || !hasBytes
			return
		}
	}
}

// divide finds the owners' parts of the utilization and the memory of an entity, and what is left.
// Where a part is not known nothing is said of the rest either: it may be that part.
func (s *Accountant) divide(c *snapshot.Cycle, e *sharedDevice) {
	if e.partitioned {
		return
	}
	e.device = s.utilization(c, e)
	memory, memoryKnown := s.value(c, s.inputs.memory, e.row)
	memory *= bytesPerMiB
	if e.device.IsAbsent() && len(e.accounts) > 0 && e.mean.IsAbsent() {
		s.miss(whatUtilization, cmp.Or(s.whyMissing(c, e), snapshot.ReasonNoData))
	}
	switch {
	case len(e.accounts) == 0:
	case e.shared:
		s.divideShared(e, memory, memoryKnown)
	default: // what runs there is its only owner's
		a := e.accounts[0]
		a.util = e.device
		if memoryKnown {
			a.memory = bytesOf(memory)
		}
	}
	if util, ok := e.device.Number(); ok {
		if rest, ok := rest(util, e.accounts, func(a *ownerUsage) gpu.Value { return a.util }); ok {
			e.util = gpu.Float(rest)
		}
	}
	if memoryKnown {
		if rest, ok := rest(memory, e.accounts, func(a *ownerUsage) gpu.Value { return a.memory }); ok {
			e.memory = bytesOf(rest)
		}
	}
}

// utilization returns the entity's own, 0 to 1; absent where the entity is not read.
func (s *session) utilization(c *snapshot.Cycle, e *sharedDevice) gpu.Value {
	if !e.instance {
		if n, ok := s.value(c, s.inputs.util, e.row); ok {
			return gpu.Float(min(n/100, 1))
		}
	}
	if n, ok := s.value(c, s.inputs.engine, e.row); ok {
		return gpu.Float(min(n, 1))
	}
	return gpu.Value{}
}

// value returns the value of an input in a row that is read.
func (s *session) value(c *snapshot.Cycle, input, row int) (float64, bool) {
	if c.Down(row) != nil {
		return 0, false
	}
	return c.Value(input, row).Number()
}

// whyMissing says why an entity has no utilization.
func (s *session) whyMissing(c *snapshot.Cycle, e *sharedDevice) string {
	if e.instance {
		return c.Missing(s.inputs.engine, e.row)
	}
	return c.Missing(s.inputs.util, e.row)
}

// divideShared divides an entity that several own by what their processes did.
func (s *Accountant) divideShared(e *sharedDevice, memory float64, memoryKnown bool) {
	switch {
	case e.noProcesses != "":
		s.miss(whatProcesses, e.noProcesses)
		return
	case e.noPods != nil:
		s.miss(whatPodOfProcess, gpu.Reason(e.noPods))
		return
	}
	s.divideByProcess(e)
	if !memoryKnown {
		return
	}
	scale := 1.0
	if e.bytes > memory { // samples of two moments can add up to more than there is
		scale = memory / e.bytes
		s.scaledBytes.Inc()
	}
	for _, a := range e.accounts {
		switch {
		case a.uid == "":
			s.miss(whatPodUID, snapshot.ReasonNoData)
		case a.noBytes:
			s.miss(whatProcessMemory, snapshot.ReasonNoData)
		default:
			a.memory = bytesOf(a.bytes * scale)
		}
	}
}

// divideByProcess gives the owners their processes' part of the entity's utilization. Both are of
// one interval where the source reports the entity's beside the processes; a sample of one moment
// is less than what the processes did together only because the moment was not the interval.
func (s *Accountant) divideByProcess(e *sharedDevice) {
	if e.noBusy != nil {
		s.miss(whatProcessUtilization, gpu.Reason(e.noBusy))
		return
	}
	util, known := e.mean.Number()
	if !known {
		if util, known = e.device.Number(); !known {
			return
		}
		if !e.instance { // an instance's is of an interval as it is, that of the profiling counters
			util = max(util, min(e.busy, 1))
		}
	}
	e.device = gpu.Float(util)
	scale := 1.0
	if e.busy > util { // they overlap, as under MPS, or the driver rounds
		scale = util / e.busy
		s.scaledBusy.Inc()
	}
	for _, a := range e.accounts {
		switch {
		case a.uid == "":
			s.miss(whatPodUID, snapshot.ReasonNoData)
		case a.noBusy:
			s.miss(whatProcessUtilization, snapshot.ReasonNoData)
		default:
			a.util = gpu.Float(a.busy * scale)
		}
	}
}

// rest returns what of a device's value no account has, and whether every account's is known.
// Rounding never makes it negative.
func rest(value float64, accounts []*ownerUsage, of func(*ownerUsage) gpu.Value) (float64, bool) {
	for _, a := range accounts {
		n, ok := of(a).Number()
		if !ok {
			return 0, false
		}
		value -= n
	}
	return max(value, 0), true
}

// bytesOf returns a number of bytes, as an integer where it is one.
func bytesOf(n float64) gpu.Value {
	if n == math.Trunc(n) && n < 1<<53 {
		return gpu.Int(int64(n))
	}
	return gpu.Float(n)
}
