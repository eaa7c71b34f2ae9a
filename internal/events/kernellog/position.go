package kernellog

import (
	"strconv"
	"strings"
)

// A Position is how far the log has been read. Sequence numbers begin again with every boot.
type Position struct {
	Boot string // the kernel's id of the boot
	Next uint64 // the sequence number of the first record that is not read yet
}

// String returns the position as ParsePosition reads it; "" for the zero one.
func (p Position) String() string {
	if p.Boot == "" {
		return ""
	}
	return p.Boot + "/" + strconv.FormatUint(p.Next, 10)
}

// ParsePosition reads what String returned; the zero Position of any other text.
func ParsePosition(s string) Position {
	boot, next, _ := strings.Cut(s, "/")
	n, err := strconv.ParseUint(next, 10, 64)
	if boot == "" || err != nil {
		return Position{}
	}
	return Position{Boot: boot, Next: n}
}
