package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxSelected is the largest number of IDs in a selector: DCGM's largest number of entities of one kind
// (DCGM_MAX_NUM_CPU_CORES).
const maxSelected = 1024

// selector accepts a device selector:
//
//	f            whole GPUs, and the instances of those partitioned by MIG
//	g[:ids]      GPUs, switches or CPUs
//	i[:ids]      GPU instances, links or cores
//	g[:ids]+i[:ids]
//
// Without ids, all entities are selected. The default is f.
func selector(p *gpu.Selector) value {
	const form = "f, g[:ids], i[:ids] or g[:ids]+i[:ids], where ids are numbers and ranges such as 0,2-4"
	v := parsed(p, form, parseSelector)
	v.initial, v.text = "f", func() string { return formatSelector(*p) }
	return v
}

func parseSelector(s string) (sel gpu.Selector, err error) {
	for part := range strings.SplitSeq(s, "+") {
		letter, list, hasList := strings.Cut(strings.TrimSpace(part), ":")
		var ids []uint32
		if hasList {
			if ids, err = parseIDs(list); err != nil {
				return gpu.Selector{}, err
			}
		}
		switch {
		case letter == "f" && !hasList && !sel.Flex:
			sel.Flex = true
		case letter == "g" && !sel.Major:
			sel.Major, sel.MajorIDs = true, ids
		case letter == "i" && !sel.Minor:
			sel.Minor, sel.MinorIDs = true, ids
		default:
			return gpu.Selector{}, errForm
		}
	}
	if sel.Flex && (sel.Major || sel.Minor) {
		return gpu.Selector{}, errForm
	}
	return sel, nil
}

// parseIDs returns the IDs of a list of numbers and ranges, sorted and without duplicates.
func parseIDs(list string) (ids []uint32, err error) {
	for item := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(item), "-")
		if !isRange {
			high = low
		}
		first, errFirst := strconv.ParseUint(low, 10, 32)
		last, errLast := strconv.ParseUint(high, 10, 32)
		if cmp.Or(errFirst, errLast) != nil || last < first {
			return nil, errForm
		}
		if uint64(len(ids))+last-first >= maxSelected {
			return nil, fmt.Errorf("more than %d IDs", maxSelected)
		}
		for id := first; id <= last; id++ {
			ids = append(ids, uint32(id))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// formatSelector returns the selector in the syntax of parseSelector.
func formatSelector(s gpu.Selector) string {
	var parts []string
	add := func(letter string, selected bool, ids []uint32) {
		if ids != nil {
			letter += ":" + strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ",")
		}
		if selected {
			parts = append(parts, letter)
		}
	}
	add("f", s.Flex, nil)
	add("g", s.Major, s.MajorIDs)
	add("i", s.Minor, s.MinorIDs)
	return strings.Join(parts, "+")
}
