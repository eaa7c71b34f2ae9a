package accounting

import (
	"cmp"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

const bytesPerMiB = 1 << 20

// A claim is the sum of what processes say they use.
type claim struct {
	sum        float64
	incomplete bool // one of them does not say it
}

func (c *claim) add(v gpu.Value) {
	n, known := v.Number()
	c.sum += max(n, 0)
	c.incomplete = c.incomplete || !known
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
	if row < 0 || row >= len(s.at) || s.at[row] < 0 || !s.entities[s.at[row]].shared {
		return nil
	}
	return &s.entities[s.at[row]]
}

func (s *session) applyFault(f *gpu.Fault) {
	for i := range s.entities {
		e := &s.entities[i]
		if f.Row != e.row && f.Row != gpu.AllRows {
			continue
		}
		switch f.Field {
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

// addProcess adds a process to the claims of the entity and of its pod: the outermost one that owns
// the entity, since a pod can be a node of pods, and names what is below it.
func (e *sharedDevice) addProcess(p *gpu.Process, uids []string) {
	e.busy.add(p.Busy)
	e.bytes.add(p.Memory)
	for _, uid := range uids {
		if a := e.byUID[uid]; a != nil {
			a.busy.add(p.Busy)
			a.bytes.add(p.Memory)
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
	mib, memoryKnown := s.value(c, s.inputs.memory, e.row)
	memory := mib * bytesPerMiB
	if e.device.IsAbsent() && len(e.accounts) > 0 && e.mean.IsAbsent() {
		s.miss(whatUtilization, cmp.Or(s.whyMissing(c, e), snapshot.ReasonNoData))
	}
	switch {
	case len(e.accounts) == 0:
	case e.shared:
		s.divideShared(e, memory, memoryKnown)
	default: // its only owner has all
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

// divideShared divides an entity of several owners by what their processes did.
func (s *Accountant) divideShared(e *sharedDevice, memory float64, memoryKnown bool) {
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
		if util, known := e.interval(); known {
			e.device = gpu.Float(util)
			// Processes overlap under MPS, and the driver rounds.
			scale := scaled(e.busy.sum, util, s.scaledBusy)
			s.distribute(e, whatProcessUtilization, func(a *ownerUsage) (*gpu.Value, claim, gpu.Value) {
				return &a.util, a.busy, gpu.Float(a.busy.sum * scale)
			})
		}
	}
	if memoryKnown {
		// Samples of two moments can add up to more than there is.
		scale := scaled(e.bytes.sum, memory, s.scaledBytes)
		s.distribute(e, whatProcessMemory, func(a *ownerUsage) (*gpu.Value, claim, gpu.Value) {
			return &a.memory, a.bytes, bytesOf(a.bytes.sum * scale)
		})
	}
}

// interval returns the utilization of an entity over the interval that its processes report. That
// is beside the processes where the source has it; a sample of one moment is less than what the
// processes did together only because the moment was not the interval.
func (e *sharedDevice) interval() (util float64, known bool) {
	if util, known = e.mean.Number(); known {
		return util, true
	}
	util, known = e.device.Number()
	if !e.instance { // an instance's is of an interval as it is, that of the profiling counters
		util = max(util, min(e.busy.sum, 1))
	}
	return util, known
}

// scaled returns the factor that brings a sum of claims down to what the device has, and counts.
func scaled(sum, device float64, count prometheus.Counter) float64 {
	if sum <= device {
		return 1
	}
	count.Inc()
	return device / sum
}

// distribute gives each owner its part, where that is known.
func (s *session) distribute(e *sharedDevice, what string, of func(*ownerUsage) (to *gpu.Value, c claim, part gpu.Value)) {
	for _, a := range e.accounts {
		switch to, c, part := of(a); {
		case a.uid == "":
			s.miss(whatPodUID, snapshot.ReasonNoData)
		case c.incomplete:
			s.miss(what, snapshot.ReasonNoData)
		default:
			*to = part
		}
	}
}

// rest returns the part of a device's value that no account has, and whether every account's is
// known. Rounding never makes it negative.
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
