package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxSelected is the largest number of IDs in a selector: DCGM's largest number of entities of one kind
// (DCGM_MAX_NUM_CPU_CORES).
const maxSelected = 1024

// selectorForm describes the syntax of parseSelector for messages that end in "expected …".
const selectorForm = "f, g[:ids], i[:ids] or g[:ids]+i[:ids], where ids are numbers and ranges such as 0,2-4"

// parseSelector reads a device selector:
//
//	f            whole GPUs, and the instances of those partitioned by MIG
//	g[:ids]      GPUs, switches or CPUs
//	i[:ids]      GPU instances, links or cores
//	g[:ids]+i[:ids]
//
// ids are numbers and ranges, such as "0,2-4". Without ids, all entities are selected. The IDs of the result are sorted
// and unique.
func parseSelector(s string) (gpu.Selector, error) {
	var sel gpu.Selector
	for part := range strings.SplitSeq(s, "+") {
		if err := addToSelector(&sel, strings.TrimSpace(part)); err != nil {
			return gpu.Selector{}, err
		}
	}
	if sel.Flex && (sel.Major || sel.Minor) {
		return gpu.Selector{}, errors.New(`"f" cannot be combined with "g" or "i"`)
	}
	return sel, nil
}

// addToSelector parses one letter with optional IDs.
func addToSelector(s *gpu.Selector, part string) error {
	letter, list, hasList := strings.Cut(part, ":")
	var ids []uint32
	if hasList {
		var err error
		if ids, err = parseIDs(list); err != nil {
			return err
		}
	}
	var seen *bool
	switch letter {
	case "f":
		seen = &s.Flex
	case "g":
		seen, s.MajorIDs = &s.Major, ids
	case "i":
		seen, s.MinorIDs = &s.Minor, ids
	default:
		return fmt.Errorf("%q is not f, g or i", letter)
	}
	switch {
	case *seen:
		return fmt.Errorf("%q occurs twice", letter)
	case hasList && letter == "f":
		return fmt.Errorf("%q takes no IDs", letter)
	}
	*seen = true
	return nil
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
		// Use 64 bits: the size of 0-4294967295 overflows 32 bits.
		if uint64(len(ids))+uint64(last)-uint64(first) >= maxSelected {
			return nil, fmt.Errorf("%s names more than %d IDs", list, maxSelected)
		}
		for n := range last - first + 1 {
			ids = append(ids, first+n)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not an ID", s)
	}
	return uint32(n), nil
}

// formatSelector returns the selector in the syntax of parseSelector.
func formatSelector(s gpu.Selector) string {
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
	return strings.Join(parts, "+")
}

func formatIDs(ids []uint32) string {
	if ids == nil {
		return ""
	}
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.FormatUint(uint64(id), 10)
	}
	return ":" + strings.Join(words, ",")
}
