package kernellog

import (
	"strconv"
	"strings"
	"time"
)

// A Record is one entry of the kernel log.
type Record struct {
	Kernel   bool // written by the kernel; other writers use other syslog facilities
	Sequence uint64
	Up       time.Duration // time since boot by the log's own clock, which drifts by seconds per day
	Text     string        // the first line, without the optional fields after it
}

// ParseRecord parses a record of /dev/kmsg, such as "6,339,5140900,-;text", and reports whether it is valid.
// The numbers are the priority and facility, the sequence number and the microseconds since boot; flags follow
// (Linux, Documentation/ABI/testing/dev-kmsg). Lines after the first hold optional fields.
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
