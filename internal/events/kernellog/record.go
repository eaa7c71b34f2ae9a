package kernellog

import (
	"strconv"
	"strings"
	"time"
)

// A Record is one entry of the kernel's log.
type Record struct {
	Kernel   bool // the kernel wrote it; records of others have another syslog facility
	Sequence uint64
	Up       time.Duration // since the boot, by the log's own clock, which drifts by seconds a day
	Text     string        // its first line, without the fields that may follow it
}

// ParseRecord reads a record of /dev/kmsg, "6,339,5140900,-;text" and lines of further fields: priority and facility,
// sequence number, microseconds since the boot, flags (Linux, Documentation/ABI/testing/dev-kmsg).
func ParseRecord(b []byte) (Record, bool) {
	head, text, found := strings.Cut(string(b), ";")
	if !found {
		return Record{}, false
	}
	fields := strings.SplitN(head, ",", 4)
	if len(fields) < 3 {
		return Record{}, false
	}
	var n [3]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(fields[i], 10, 53); err != nil {
			return Record{}, false
		}
	}
	text, _, _ = strings.Cut(text, "\n")
	return Record{Kernel: n[0]>>3 == 0, Sequence: n[1], Up: time.Duration(n[2]) * time.Microsecond, Text: text}, true
}
