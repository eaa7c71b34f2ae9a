package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxSelected bounds the ids that one selector may spell out. It is DCGM's
// largest number of entities of a kind (DCGM_MAX_NUM_CPU_CORES).
const maxSelected = 1024

const (
	selectorForm = "f, g[:ids], i[:ids] or g[:ids]+i[:ids], where ids are numbers and ranges such as 0,2-4"
	devicesForm  = selectorForm + ", and f or i with +c"
)

// ParseDevices reads the selector of --devices: what ParseSelector reads, and
//
//	…+c          compute instances too, of the GPU instances that f or i selects
//
// which takes no ids and goes with f or i alone.
func ParseDevices(s string) (gpu.Selector, error) { return parseSelector(s, true) }

// ParseSelector reads a device selector:
//
//	f            whole GPUs, and the instances of those cut by MIG
//	g[:ids]      GPUs, switches or CPUs, all or those named
//	i[:ids]      GPU instances, links or cores
//	g[:ids]+i[:ids]
//
// ids are numbers and ranges, "0,2-4". In the result they are sorted, and
// none occurs twice.
func ParseSelector(s string) (gpu.Selector, error) { return parseSelector(s, false) }

func parseSelector(s string, compute bool) (gpu.Selector, error) {
	var sel gpu.Selector
	parts := strings.Split(s, "+")
	for _, part := range parts {
		letter, list, hasList := strings.Cut(strings.TrimSpace(part), ":")
		var ids []uint32
		if hasList {
			var err error
			if ids, err = parseIDs(list); err != nil {
				return gpu.Selector{}, err
			}
		}
		var seen *bool
		switch {
		case letter == "f":
			seen = &sel.Flex
		case letter == "g":
			seen, sel.MajorIDs = &sel.Major, ids
		case letter == "i":
			seen, sel.MinorIDs = &sel.Minor, ids
		case letter == "c" && compute:
			seen = &sel.Compute
		case compute:
			return gpu.Selector{}, fmt.Errorf("%q is none of f, g, i and c", letter)
		default:
			return gpu.Selector{}, fmt.Errorf("%q is none of f, g and i", letter)
		}
		switch {
		case *seen:
			return gpu.Selector{}, fmt.Errorf("%q occurs twice", letter)
		case hasList && (letter == "f" || letter == "c"):
			return gpu.Selector{}, fmt.Errorf("%q takes no ids", letter)
		}
		*seen = true
	}
	switch {
	case sel.Flex && (sel.Major || sel.Minor) && compute:
		return gpu.Selector{}, errors.New(`"f" combines with nothing but "c"`)
	case sel.Flex && (sel.Major || sel.Minor):
		return gpu.Selector{}, errors.New(`"f" combines with nothing`)
	case sel.Compute && !sel.Flex && !sel.Minor:
		return gpu.Selector{}, errors.New(`"c" goes with f or i: it adds the compute instances of their GPU instances`)
	}
	return sel, nil
}

func parseIDs(list string) ([]uint32, error) {
	var ids []uint32
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		low, high, isRange := strings.Cut(item, "-")
		first, err := parseID(low)
		if err != nil {
			return nil, err
		}
		last := first
		if isRange {
			if last, err = parseID(high); err != nil {
				return nil, err
			}
		}
		if last < first {
			return nil, fmt.Errorf("the range %s runs backwards", item)
		}
		// In 64 bits, since the width of 0-4294967295 overflows 32.
		if uint64(len(ids))+uint64(last)-uint64(first) >= maxSelected {
			return nil, fmt.Errorf("%s names more than %d ids", list, maxSelected)
		}
		for n := range last - first + 1 {
			ids = append(ids, first+n)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func parseID(s string) (uint32, error) {
	// ParseUint would take a sign of neither kind, and an empty text is an
	// error too.
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no id", s)
	}
	return uint32(n), nil
}

// FormatSelector writes a selector in the form that ParseDevices or
// ParseSelector reads, ids in the order given with runs of three or more as
// ranges.
func FormatSelector(s gpu.Selector) string {
	var parts []string
	if s.Flex {
		parts = append(parts, "f")
	}
	if s.Major {
		parts = append(parts, "g"+formatIDs(s.MajorIDs))
	}
	if s.Minor {
		parts = append(parts, "i"+formatIDs(s.MinorIDs))
	}
	if s.Compute {
		parts = append(parts, "c")
	}
	return strings.Join(parts, "+")
}

func formatIDs(ids []uint32) string {
	if ids == nil {
		return ""
	}
	var b strings.Builder
	separator := byte(':')
	for i := 0; i < len(ids); {
		end := i
		for end+1 < len(ids) && ids[end+1] == ids[end]+1 {
			end++
		}
		if end-i < 2 {
			end = i
		}
		b.WriteByte(separator)
		separator = ','
		b.WriteString(strconv.FormatUint(uint64(ids[i]), 10))
		if end > i {
			b.WriteByte('-')
			b.WriteString(strconv.FormatUint(uint64(ids[end]), 10))
		}
		i = end + 1
	}
	return b.String()
}
