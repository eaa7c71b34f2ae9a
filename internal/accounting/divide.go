package accounting

import (
	"cmp"
	"math"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

const bytesPerMiB = 1 << 20

// Claims are the sums of the processes' own figures: of the time, and of memory.
type claims [memory + 1]struct {
	sum        float64
	incomplete bool // one of them does not say it
}

// claimed are the names of claims.
func claimed() []string { return []string{utilization: "utilization", memory: "memory"} }

func (c *claims) add(p *gpu.Process) {
	for m, v := range [...]gpu.Value{utilization: p.Busy, memory: p.Memory} {
		n, known := v.Number()
		c[m].sum += max(n, 0)
		c[m].incomplete = c[m].incomplete || !known
	}
}

// readProcesses adds the processes to their pods' claims, or notes why these are not known.
func (s *session) readProcesses(c *snapshot.Cycle) {
	b := c.Batch
	clear(s.pods)
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
		// Also where nothing is divided: the finder notices an id that comes again by its pod before.
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
	for i := range s.entities { // reports of an entity that is not read are of an earlier time
		e := &s.entities[i]
		if err := c.Down(e.row); err != nil {
			e.noProcesses, e.mean = cmp.Or(e.noProcesses, gpu.Reason(err)), gpu.Value{}
		}
	}
}

// sharedEntity returns the entity of a row that is divided by its processes, nil for others.
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
		switch e := &entities[i]; f.Field {
		case gpu.FieldProcessBusy:
			e.noBusy = f.Err
		case gpu.FieldProcesses, gpu.AllFields:
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

// addProcess adds a process to the claims of the entity and of its pod. The outermost pod that owns the
// entity counts: a pod can be a node of pods.
func (e *sharedDevice) addProcess(p *gpu.Process, uids []string) {
	e.claims.add(p)
	for _, uid := range uids {
		if a := e.byUID[uid]; a != nil {
			a.claims.add(p)
			return
		}
	}
}

// divide finds the owners' parts of the utilization and the memory of an entity, and the rest. Where
// a part is not known neither is the rest, which may be that part.
func (s *Accountant) divide(c *snapshot.Cycle, e *sharedDevice) {
	if e.partitioned {
		return
	}
	e.device = s.utilization(c, e)
	mib, known := s.value(c, s.inputs.memory, e.row)
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
	default: // its only owner has all
		now := &e.accounts[0].now
		now[utilization], now[memory] = e.device, used
	}
	e.setRest(utilization, e.device)
	e.setRest(memory, used)
}

// setRest finds the part of a device's value that no account has, if every account's is known.
// Rounding never makes it negative.
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

// divideShared divides an entity of several owners by what their processes did.
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

// interval returns the utilization of an entity over the interval that its processes report. The
// source has it beside the processes, or not: then a sample of one moment is less than the processes'
// sum only because the moment was not the interval.
func (e *sharedDevice) interval() gpu.Value {
	if !e.mean.IsAbsent() {
		return e.mean
	}
	util, known := e.device.Number()
	if !known || e.instance { // an instance's is of an interval as it is, that of the profiling counters
		return e.device
	}
	return gpu.Float(max(util, min(e.claims[utilization].sum, 1)))
}

// distribute gives each owner its claim to a device's value, where both are known. Claims of more
// than there is are scaled down: processes overlap under MPS, the driver rounds, and samples of two
// moments can add up to more.
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

// numberOf returns a number, as an integer where it is one: a page writes bytes with all digits.
func numberOf(n float64) gpu.Value {
	if n == math.Trunc(n) && n < 1<<53 {
		return gpu.Int(int64(n))
	}
	return gpu.Float(n)
}
