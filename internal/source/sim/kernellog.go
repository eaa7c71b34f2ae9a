package sim

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A KernelLog is the log of the simulated kernel in the format of /dev/kmsg. Read returns one record, and blocks until
// there is one. Close may be called concurrently with Read.
type KernelLog struct {
	src     *Source
	records []kernelRecord // sorted by time
	next    int

	closed context.Context
	close  context.CancelFunc
}

// A kernelRecord is one record of the log. Its index is its sequence number.
type kernelRecord struct {
	at   time.Duration // time since boot
	text string
}

// KernelLog opens the log of the simulated kernel, starting at boot, which is the start of the simulation. The log has
// the driver's own line and the XIDs and SXIDs of the scenario, except those that only the engine reports. An XID names
// the process of the first pod on the GPU.
func (s *Source) KernelLog() *KernelLog {
	w := s.world
	l := &KernelLog{src: s}
	l.closed, l.close = context.WithCancel(context.Background())
	l.records = []kernelRecord{{0, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  " + w.node.Driver}}
	for i := range w.faults {
		f := &w.faults[i]
		for _, ref := range f.devices {
			for i, code := range f.XIDs {
				if f.seenBy("kernel") {
					at := time.Duration(f.occurs(i) - w.start)
					l.records = append(l.records, kernelRecord{at, w.errorLine(f, ref, code)})
				}
			}
		}
	}
	slices.SortStableFunc(l.records, func(a, b kernelRecord) int { return cmp.Compare(a.at, b.at) })
	return l
}

// errorLine returns the driver's line about an XID, or an error of an NVSwitch or one of its links.
func (w *world) errorLine(f *fault, ref deviceRef, code int64) string {
	if f.Kind == faultSXID {
		severity, link, bus := "Fatal", ",", strings.ToLower(busID(0xc1, ref.id)[len("0000"):])
		if f.Result == "warn" {
			severity = "Non-fatal"
		}
		if ref.kind == gpu.KindNVLink {
			link = fmt.Sprintf(", Link %02d", ref.sub)
		}
		return fmt.Sprintf("nvidia-nvswitch%d: SXid (PCI:%s): %05d, %s%s of the scenario",
			ref.id, bus, code, severity, link)
	}
	pid, name := "'<unknown>'", "<unknown>"
	isOn := func(p podSpec) bool {
		return slices.ContainsFunc(p.devices, func(r deviceRef) bool { return r.id == ref.id })
	}
	if i := slices.IndexFunc(w.node.Pods, isOn); i >= 0 {
		pid, name = strconv.Itoa(firstPID+i), cmp.Or(w.node.Pods[i].Container, w.node.Pods[i].Pod)
	}
	bus, _, _ := strings.Cut(strings.ToLower(busID(0x1b, ref.id)[len("0000"):]), ".")
	return fmt.Sprintf("NVRM: Xid (PCI:%s): %d, pid=%s, name=%s, %s",
		bus, code, pid, name, cmp.Or(f.Text, "of the scenario"))
}

// Read returns the next record once it is written, or fs.ErrClosed after Close.
func (l *KernelLog) Read(b []byte) (int, error) {
	var due <-chan time.Time // nil, so never ready, if there are no more records
	if l.next < len(l.records) {
		due = time.After(l.records[l.next].at - l.Uptime())
	}
	select {
	case <-due:
	case <-l.closed.Done():
	}
	if l.closed.Err() != nil {
		return 0, fs.ErrClosed
	}
	return l.take(b)
}

// TryRead returns the next record if it is written. Otherwise it returns 0 and no error.
func (l *KernelLog) TryRead(b []byte) (int, error) {
	if l.next == len(l.records) || l.records[l.next].at > l.Uptime() {
		return 0, nil
	}
	return l.take(b)
}

func (l *KernelLog) take(b []byte) (int, error) {
	r := l.records[l.next]
	const warning = 4 // facility 0 (the kernel)
	line := fmt.Appendf(nil, "%d,%d,%d,-;%s\n", warning, l.next, r.at.Microseconds(), r.text)
	if len(b) < len(line) {
		return 0, syscall.EINVAL
	}
	l.next++
	return copy(b, line), nil
}

// Uptime returns the time since the boot of the simulated machine.
func (l *KernelLog) Uptime() time.Duration { return time.Duration(l.src.now() - l.src.world.start) }

// Close makes every Read return.
func (l *KernelLog) Close() error {
	l.close()
	return nil
}
