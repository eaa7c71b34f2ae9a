//go:build linux && cgo

package nvml

import (
	"cmp"
	"math"
	"slices"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The functions that tell of processes, each in its versions.
var (
	computeProcesses = []string{
		"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses",
	}
	graphicsProcesses = []string{
		"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses",
	}
)

const processUtilization = "nvmlDeviceGetProcessUtilization"

// processes is what is kept of a row's processes from one Read to the next.
type processes struct {
	list, busy block
	// seen is the time of the newest utilisation sample, in the driver's
	// microseconds: without it the driver tells old samples again.
	seen uint64
}

// readProcesses appends the processes of a row: what memory they hold, by the
// driver's lists of those that compute and those that draw, and for a whole
// GPU how busy they kept it since the previous Read. It returns an error only
// if the GPU or the driver is gone.
func (s *Session) readProcesses(d *device, r *row, b *gpu.Batch) error {
	now := time.Now()
	if r.kind == gpu.KindGPU && d.mig {
		b.Fail(r.index, gpu.FieldProcesses, gpu.ErrNotSupported) // they are its instances'
		return nil
	}
	first := len(b.Processes)
	err := s.listProcesses(d, r, b, now)
	if gone(err) {
		return err
	}
	if err != nil {
		clear(b.Processes[first:])
		b.Processes = b.Processes[:first]
		b.Fail(r.index, gpu.FieldProcesses, err)
		return nil
	}
	if err = s.timeProcesses(r, b, first, now); gone(err) {
		return err
	}
	if err != nil {
		b.Fail(r.index, gpu.FieldProcessBusy, err)
	}
	return nil
}

// gone reports whether an error of a call means that nothing more can be read
// of the GPU.
func gone(err error) bool {
	e, ok := err.(*driverError)
	return ok && (gpuGone(e.ret) || driverGone(e.ret))
}

// listProcesses appends the processes that run on a row, with their memory.
func (s *Session) listProcesses(d *device, r *row, b *gpu.Batch, now time.Time) error {
	p := &r.processes
	if p.list.closed(now) {
		return p.list.err
	}
	handles := []gonvml.Device{r.target.device}
	if r.kind == gpu.KindGPUInstance {
		handles = handles[:0]
		for i := range d.slots { // one MIG device per compute instance
			if d.slots[i].gi == r.gi {
				handles = append(handles, d.slots[i].handle)
			}
		}
	}
	first := len(b.Processes)
	for _, list := range [...]struct {
		symbols []string
		get     func(gonvml.Device) ([]gonvml.ProcessInfo, gonvml.Return)
	}{
		{computeProcesses, gonvml.Device.GetComputeRunningProcesses},
		{graphicsProcesses, gonvml.Device.GetGraphicsRunningProcesses},
	} {
		if !s.symbols.any(list.symbols) {
			return p.list.refuse(list.symbols[0], gonvml.ERROR_FUNCTION_NOT_FOUND, now, s.reprobe)
		}
		seen := len(b.Processes)
		for _, handle := range handles {
			infos, ret := list.get(handle)
			if gpuGone(ret) || driverGone(ret) {
				return &driverError{list.symbols[0], ret}
			}
			if ret == gonvml.ERROR_NOT_SUPPORTED && len(b.Processes) == seen && list.symbols[0] == graphicsProcesses[0] {
				continue // nothing draws on a board, or a MIG device, that cannot
			}
			if ret != gonvml.SUCCESS {
				return p.list.refuse(list.symbols[0], ret, now, s.reprobe)
			}
			for i := range infos {
				addProcess(b, first, seen, r.index, &infos[i], now)
			}
		}
	}
	p.list = block{}
	return nil
}

// addProcess appends a process, or adds to the one that is there: one that
// holds memory on several compute instances holds the sum, one that computes
// and draws is in both lists with the same memory.
func addProcess(b *gpu.Batch, first, list, row int, info *gonvml.ProcessInfo, now time.Time) {
	memory := gpu.Value{}
	if info.UsedGpuMemory <= math.MaxInt64 { // all ones where the driver does not know
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

// timeProcesses says of the processes from first on how busy they kept the GPU
// since the previous Read.
func (s *Session) timeProcesses(r *row, b *gpu.Batch, first int, now time.Time) error {
	p := &r.processes
	if r.kind != gpu.KindGPU {
		return errNoBusy
	}
	if p.busy.closed(now) {
		return p.busy.err
	}
	if !s.symbols.has(processUtilization) {
		return p.busy.refuse(processUtilization, gonvml.ERROR_FUNCTION_NOT_FOUND, now, s.reprobe)
	}
	samples, ret := r.target.device.GetProcessUtilization(p.seen)
	if ret == gonvml.ERROR_INSUFFICIENT_SIZE && len(samples) > 0 { // one more came meanwhile
		samples, ret = r.target.device.GetProcessUtilization(p.seen)
	}
	if gpuGone(ret) || driverGone(ret) {
		return &driverError{processUtilization, ret}
	}
	// Not found, or no sample at all, is the driver's word for an idle GPU.
	if ret != gonvml.SUCCESS && ret != gonvml.ERROR_NOT_FOUND && (ret != gonvml.ERROR_INSUFFICIENT_SIZE || len(samples) > 0) {
		return p.busy.refuse(processUtilization, ret, now, s.reprobe)
	}
	p.busy = block{}
	for i := range b.Processes[first:] {
		b.Processes[first+i].Busy = gpu.Float(0)
	}
	newest := p.seen
	for i := range samples {
		newest = max(newest, samples[i].TimeStamp)
	}
	slices.SortFunc(samples, func(x, y gonvml.ProcessUtilizationSample) int { return cmp.Compare(x.TimeStamp, y.TimeStamp) })
	for i := range samples {
		x := &samples[i]
		// The first answer of a session holds what the driver remembers of
		// hours; a repeated one has been told.
		if x.TimeStamp <= p.seen || newest-x.TimeStamp > uint64(s.plan.Interval.Microseconds()) || x.SmUtil > 100 {
			continue
		}
		at := slices.IndexFunc(b.Processes[first:], func(q gpu.Process) bool { return q.PID == x.Pid })
		if at < 0 { // it ended since
			b.Processes = append(b.Processes, gpu.Process{Row: r.index, PID: x.Pid, Time: now.UnixNano()})
			at = len(b.Processes) - 1 - first
		}
		b.Processes[first+at].Busy = gpu.Float(float64(x.SmUtil) / 100)
	}
	p.seen = newest
	return nil
}

// errNoBusy is the fault of a GPU instance.
var errNoBusy = &driverError{processUtilization, gonvml.ERROR_NOT_SUPPORTED}
