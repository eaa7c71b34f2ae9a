//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The functions that report processes, each with its versions.
var (
	computeProcesses = []string{"nvmlDeviceGetComputeRunningProcesses_v3",
		"nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"}
	graphicsProcesses = []string{"nvmlDeviceGetGraphicsRunningProcesses_v3",
		"nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses"}
)

const (
	samplesFunction    = "nvmlDeviceGetSamples"
	processUtilization = "nvmlDeviceGetProcessUtilization"
)

// stale is how long the latest samples are served. The driver samples every 1/6 to 1 s (nvmlDeviceGetUtilizationRates,
// nvml.h), so a Read may find no new ones.
const stale = 2 * time.Second

// processes holds the state of a row's processes between two Reads.
type processes struct {
	list, busy, samples backoff
	// seen is the time of the newest sample in the driver's Unix microseconds. The driver only reports samples newer
	// than that. read is the time of the latest query.
	seen uint64
	read time.Time

	// The result of the newest samples, and when they were taken.
	latest  []busyProcess
	mean    gpu.Value
	sampled time.Time
}

// A busyProcess is the mean utilization of the GPU by one process over an interval.
type busyProcess struct {
	pid     uint32
	percent float64
}

// readProcesses appends the processes of a row with their memory. For a whole GPU, it also appends the utilization by
// each process since the previous Read. It returns an error only if the GPU or the driver is gone.
func (s *Session) readProcesses(d *device, r *row, b *gpu.Batch) error {
	now := time.Now()
	if r.kind == gpu.KindGPU && d.mig {
		b.FailPart(r.index, gpu.PartProcesses, gpu.ErrNotSupported) // the processes belong to its instances
		return nil
	}
	first := len(b.Processes)
	part, err := gpu.PartProcessBusy, s.listProcesses(d, r, b, now)
	if err == nil {
		err = s.timeProcesses(r, b, first, now)
	} else {
		part, b.Processes = gpu.PartProcesses, slices.Delete(b.Processes, first, len(b.Processes))
	}
	if err == nil || gone(codeOf(err)) {
		return err
	}
	b.FailPart(r.index, part, err)
	return nil
}

// listProcesses appends the processes that run on a row, with their memory.
func (s *Session) listProcesses(d *device, r *row, b *gpu.Batch, now time.Time) error {
	p := &r.processes
	if p.list.active(now) {
		return p.list.err
	}
	handles := []gonvml.Device{r.target.device}
	if r.kind == gpu.KindGPUInstance {
		handles = handles[:0]
		for i := range d.slots { // there is one MIG device per compute instance
			if d.slots[i].gi == r.gi {
				handles = append(handles, d.slots[i].handle)
			}
		}
	}
	first := len(b.Processes)
	for _, list := range [...]struct {
		symbols  []string
		get      func(gonvml.Device) ([]gonvml.ProcessInfo, gonvml.Return)
		graphics bool
	}{
		{computeProcesses, gonvml.Device.GetComputeRunningProcesses, false},
		{graphicsProcesses, gonvml.Device.GetGraphicsRunningProcesses, true},
	} {
		if !s.symbols.any(list.symbols) {
			return p.list.record(list.symbols[0], gonvml.ERROR_FUNCTION_NOT_FOUND, now)
		}
		seen := len(b.Processes)
		for _, handle := range handles {
			infos, ret := list.get(handle)
			if ret == gonvml.ERROR_NOT_SUPPORTED && len(b.Processes) == seen && list.graphics {
				continue // a GPU or MIG device without graphics has no graphics processes
			}
			if ret != gonvml.SUCCESS {
				return p.list.record(list.symbols[0], ret, now)
			}
			for i := range infos {
				addProcess(b, first, seen, r.index, &infos[i], now)
			}
		}
	}
	p.list = backoff{}
	return nil
}

// addProcess appends a process, or adds its memory to the existing entry: a process may use several compute instances.
// A process with compute and graphics contexts is in both lists with the same memory.
func addProcess(b *gpu.Batch, first, list, row int, info *gonvml.ProcessInfo, now time.Time) {
	memory := gpu.Value{}
	if info.UsedGpuMemory <= math.MaxInt64 { // all ones means unknown
		memory = gpu.Int(int64(info.UsedGpuMemory))
	}
	at := slices.IndexFunc(b.Processes[first:], func(p gpu.Process) bool { return p.PID == info.Pid })
	if at < 0 {
		b.Processes = append(b.Processes, gpu.Process{Row: row, PID: info.Pid, Memory: memory, Time: now.UnixNano()})
		return
	}
	p := &b.Processes[first+at]
	old, had := p.Memory.Int64()
	more, has := memory.Int64()
	switch {
	case !has:
	case had && first+at >= list:
		p.Memory = gpu.Int(old + more)
	case !had || more > old:
		p.Memory = memory
	}
}

// timeProcesses sets the utilization of the GPU by each process from index first on, and by all of them, over the
// driver's samples since the previous Read.
func (s *Session) timeProcesses(r *row, b *gpu.Batch, first int, now time.Time) error {
	p := &r.processes
	if r.kind != gpu.KindGPU {
		return errNoBusy
	}
	if p.busy.active(now) {
		return p.busy.err
	}
	if !s.symbols.has(processUtilization) {
		return p.busy.record(processUtilization, gonvml.ERROR_FUNCTION_NOT_FOUND, now)
	}
	if now.Sub(p.read) > 3*s.plan.Interval {
		// The first query would return all samples that the driver remembers.
		p.seen, p.latest, p.mean = uint64(now.Add(-s.plan.Interval).UnixMicro()), p.latest[:0], gpu.Value{}
	}
	p.read = now
	mean, err := s.meanUtilization(r, now)
	if err != nil {
		return err
	}
	samples, ret := r.target.device.GetProcessUtilization(p.seen)
	if ret == gonvml.ERROR_INSUFFICIENT_SIZE && len(samples) > 0 { // another sample was added meanwhile
		samples, ret = r.target.device.GetProcessUtilization(p.seen)
	}
	// If the GPU is idle, the driver returns NOT_FOUND or no sample at all.
	isIdle := ret == gonvml.ERROR_NOT_FOUND || ret == gonvml.ERROR_INSUFFICIENT_SIZE && len(samples) == 0
	if ret != gonvml.SUCCESS && !isIdle {
		return p.busy.record(processUtilization, ret, now)
	}
	p.busy = backoff{}
	p.record(samples, mean, now)
	for i := range b.Processes[first:] {
		b.Processes[first+i].Busy = gpu.Float(0)
	}
	for _, x := range p.latest {
		at := slices.IndexFunc(b.Processes[first:], func(q gpu.Process) bool { return q.PID == x.pid })
		if at < 0 {
			at = len(b.Processes) - first
			ended := gpu.Process{Row: r.index, PID: x.pid, Memory: gpu.Int(0), Time: now.UnixNano()}
			b.Processes = append(b.Processes, ended)
		}
		b.Processes[first+at].Busy = gpu.Float(min(x.percent/100, 1))
	}
	if !p.mean.IsAbsent() {
		b.Utilizations = append(b.Utilizations, gpu.Utilization{Row: r.index, Busy: p.mean})
	}
	return nil
}

// A deviceMean is the mean of the driver's samples of a GPU's utilization since the previous Read.
type deviceMean struct {
	busy  gpu.Value // 0 to 1
	until uint64    // time of the newest sample
	count int       // number of samples; 0 if the driver has no new ones
}

// meanUtilization returns the mean utilization of a GPU.
func (s *Session) meanUtilization(r *row, now time.Time) (mean deviceMean, err error) {
	p := &r.processes
	if p.samples.active(now) || !s.symbols.has(samplesFunction) {
		return mean, nil
	}
	kind, samples, ret := r.target.device.GetSamples(gonvml.GPU_UTILIZATION_SAMPLES, p.seen)
	switch {
	case gone(ret):
		return mean, &driverError{samplesFunction, ret}
	case ret == gonvml.ERROR_NOT_FOUND || ret == gonvml.ERROR_INSUFFICIENT_SIZE:
		return mean, nil // no new samples, or more were added during the query; the next Read takes them
	case ret != gonvml.SUCCESS:
		p.samples.record(samplesFunction, ret, now)
		return mean, nil
	}
	sum := 0.0
	for i := range samples {
		at := samples[i].TimeStamp
		n, ok := decode(kind, samples[i].SampleValue).Number()
		if !ok || n < 0 || n > 100 || at <= p.seen || at > uint64(now.UnixMicro()) {
			continue // unused buffer entry, or a clock that is ahead
		}
		sum, mean.count, mean.until = sum+n, mean.count+1, max(mean.until, at)
	}
	if mean.count > 0 {
		mean.busy = gpu.Float(sum / float64(mean.count) / 100)
	}
	return mean, nil
}

// record stores the result of the samples of an interval.
func (p *processes) record(samples []gonvml.ProcessUtilizationSample, mean deviceMean, now time.Time) {
	newest := mean.until
	fresh := slices.DeleteFunc(samples, func(x gonvml.ProcessUtilizationSample) bool {
		// already reported, an unused entry, or garbage
		return x.TimeStamp <= p.seen || x.TimeStamp > uint64(now.UnixMicro()) || x.SmUtil > 100
	})
	for i := range fresh {
		newest = max(newest, fresh[i].TimeStamp)
	}
	switch {
	case len(fresh) > 0 || mean.count > 0:
		p.latest, p.mean, p.sampled = means(p.latest[:0], fresh, mean.count), mean.busy, now
	case p.mean.IsAbsent() || now.Sub(p.sampled) > stale: // NOT_FOUND means that the GPU is idle
		p.latest, p.mean = p.latest[:0], gpu.Value{}
	}
	p.seen = max(p.seen, newest)
}

// means appends the mean of every process over an interval. Some drivers report each process once, with its mean.
// Others report a process once for each sampling period in which it ran. If a process is repeated, every sum is divided
// by the number of periods, so that idle periods count. If that number is 0, the number of distinct times is used.
func means(list []busyProcess, samples []gonvml.ProcessUtilizationSample, periods int) []busyProcess {
	counts, times, most := map[uint32]int{}, map[uint64]struct{}{}, 0
	for i := range samples {
		x := &samples[i]
		at := slices.IndexFunc(list, func(q busyProcess) bool { return q.pid == x.Pid })
		if at < 0 {
			at = len(list)
			list = append(list, busyProcess{pid: x.Pid})
		}
		list[at].percent += float64(x.SmUtil)
		counts[x.Pid]++
		times[x.TimeStamp] = struct{}{}
		most = max(most, counts[x.Pid])
	}
	if most < 2 {
		return list
	}
	if periods == 0 {
		periods = len(times)
	}
	for i := range list {
		list[i].percent /= float64(max(periods, most))
	}
	return list
}

// errNoBusy is the fault of a GPU instance, whose processes have no utilization.
var errNoBusy = &driverError{processUtilization, gonvml.ERROR_NOT_SUPPORTED}
