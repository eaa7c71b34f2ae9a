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
	l := &KernelLog{
		src: s, records: []kernelRecord{{0, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  " + s.node.Driver}},
	}
	l.closed, l.close = context.WithCancel(context.Background())
	write := func(kind string, line func(*fault, deviceRef, int64) string) {
		for f := range s.faults(kind) {
			for _, ref := range f.devices {
				for i, code := range f.XIDs {
					if f.seenBy("kernel") {
						l.records = append(l.records, kernelRecord{f.occurs(i), line(f, ref, code)})
					}
				}
			}
		}
	}
	write(faultXID, s.xidLine)
	write(faultSXID, sxidLine)
	slices.SortStableFunc(l.records, func(a, b kernelRecord) int { return cmp.Compare(a.at, b.at) })
	return l
}

// xidLine returns the driver's line about an XID.
func (s *Source) xidLine(f *fault, ref deviceRef, xid int64) string {
	pid, name := "'<unknown>'", "<unknown>"
	for i := range s.node.Pods {
		p := &s.node.Pods[i]
		if slices.ContainsFunc(p.devices, func(r deviceRef) bool { return r.id == ref.id }) {
			pid, name = strconv.Itoa(firstPID+i), cmp.Or(p.Container, p.Pod)
			break
		}
	}
	bus, _, _ := strings.Cut(strings.ToLower(busID(0x1b, ref.id)[len("0000"):]), ".")
	text := cmp.Or(f.Text, "of the scenario")
	return fmt.Sprintf("NVRM: Xid (PCI:%s): %d, pid=%s, name=%s, %s", bus, xid, pid, name, text)
}

// sxidLine returns the driver's line about an error of an NVSwitch, or of one of its links.
func sxidLine(f *fault, ref deviceRef, sxid int64) string {
	severity, link, bus := "Fatal", ",", strings.ToLower(busID(0xc1, ref.id)[len("0000"):])
	if f.Result == "warn" {
		severity = "Non-fatal"
	}
	if ref.kind == gpu.KindNVLink {
		link = fmt.Sprintf(", Link %02d", ref.sub)
	}
	return fmt.Sprintf("nvidia-nvswitch%d: SXid (PCI:%s): %05d, %s%s of the scenario",
		ref.id, bus, sxid, severity, link)
}

// Read returns the next record once it is written, or fs.ErrClosed after Close.
func (l *KernelLog) Read(b []byte) (int, error) {
	var due <-chan time.Time // nil, so never ready, if there are no more records
	if l.next < len(l.records) {
		timer := time.NewTimer(l.records[l.next].at - l.Uptime())
		defer timer.Stop()
		due = timer.C
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

// take returns the next record.
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
func (l *KernelLog) Uptime() time.Duration { return l.src.elapsed(l.src.now().UnixNano()) }

// Close makes every Read return.
func (l *KernelLog) Close() error {
	l.close()
	return nil
}
