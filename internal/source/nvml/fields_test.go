//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"testing"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Both sources serve a field in the catalog's unit.
func TestSpecsAgreeWithCatalog(t *testing.T) {
	served := 0
	for entry := range catalog.All() {
		sp, ok := specOf(entry.ID)
		if !ok {
			continue
		}
		served++
		if !entry.Exportable() {
			t.Errorf("%s (%d) has a spec but cannot be exported", entry.Classic, entry.ID)
		}
		ways := 0
		for _, way := range []bool{sp.call != nil, sp.value != 0, sp.link, sp.metric != 0} {
			if way {
				ways++
			}
		}
		if ways != 1 {
			t.Errorf("%s (%d) has %d specs, want 1", entry.Classic, entry.ID, ways)
		}
		if !entry.Levels.Has(gpu.KindGPU) && !entry.Levels.Has(gpu.KindNode) {
			t.Errorf("%s (%d) has a spec, but GPUs do not have it", entry.Classic, entry.ID)
		}
		if sp.metric != 0 != entry.Profiling {
			t.Errorf("%s (%d): profiling = %t in the catalog, want the same here",
				entry.Classic, entry.ID, entry.Profiling)
		}
	}
	if served < 180 {
		t.Errorf("fields of the catalog with a spec = %d, want at least 180", served)
	}
	for _, id := range slices.AppendSeq(slices.Collect(maps.Keys(specs)), maps.Keys(calls)) {
		if _, ok := catalog.ByID(id); !ok {
			t.Errorf("field %d has a spec but is not in the catalog", id)
		}
	}
}

// Each field of a range has its own NVML ID.
func TestRanges(t *testing.T) {
	for name, want := range map[string]spec{
		"DCGM_FI_DEV_RELIABILITY_VIOLATION":       {value: gonvml.FI_DEV_PERF_POLICY_RELIABILITY},
		"DCGM_FI_DEV_TOTAL_BASE_CLOCKS_VIOLATION": {value: gonvml.FI_DEV_PERF_POLICY_TOTAL_BASE_CLOCKS},
		"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL":           {value: gonvml.FI_DEV_ECC_DBE_AGG_TOTAL},
		"DCGM_FI_DEV_ECC_DBE_VOL_DEV":             {value: gonvml.FI_DEV_ECC_DBE_VOL_DEV},
		"DCGM_FI_DEV_ECC_DBE_VOL_TEX":             {value: gonvml.FI_DEV_ECC_DBE_VOL_TEX},
		"DCGM_FI_DEV_ECC_SBE_AGG_L1":              {value: gonvml.FI_DEV_ECC_SBE_AGG_L1},
		"DCGM_FI_DEV_ECC_DBE_AGG_TEX":             {value: gonvml.FI_DEV_ECC_DBE_AGG_TEX},
		"DCGM_FI_DEV_RETIRED_PENDING":             {value: gonvml.FI_DEV_RETIRED_PENDING},
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_L5":         {link: true, scope: 5},
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_L11":        {link: true, scope: 11},
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_L14":        {link: true, scope: 14},
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_L17":        {link: true, scope: 17},
		"DCGM_FI_PROF_NVDEC7_ACTIVE":              {metric: gonvml.GPM_METRIC_NVDEC_7_UTIL},
		"DCGM_FI_PROF_NVJPG7_ACTIVE":              {metric: gonvml.GPM_METRIC_NVJPG_7_UTIL},
		"DCGM_FI_PROF_NVOFA1_ACTIVE":              {metric: gonvml.GPM_METRIC_NVOFA_1_UTIL},
	} {
		named, _ := catalog.Lookup(name)
		if got, ok := specOf(named.Entry.ID); !ok || got != want {
			t.Errorf("%s (%d): spec = %+v, want %+v", name, named.Entry.ID, got, want)
		}
	}
	for _, id := range []gpu.FieldID{200, 201, 248, 450, 490, 497, 878, 898, 1035, 1039, 1080, 1084, 1100, 1603} {
		if sp, ok := specOf(id); ok {
			t.Errorf("field %d: spec = %+v, want none", id, sp)
		}
	}
}

// Every number in a field value is decoded to the same number. If an int64 cannot hold it, there is no value.
func FuzzDecode(f *testing.F) {
	f.Add(uint64(361800000))
	f.Add(uint64(math.MaxUint64))
	f.Add(math.Float64bits(-0.5))
	f.Fuzz(func(t *testing.T, bits uint64) {
		var value [8]byte
		binary.NativeEndian.PutUint64(value[:], bits)
		word := binary.NativeEndian.Uint32(value[:])
		unsigned := gpu.Value{}
		if bits <= math.MaxInt64 {
			unsigned = gpu.Int(int64(bits))
		}
		for kind, want := range map[gonvml.ValueType]gpu.Value{
			gonvml.VALUE_TYPE_UNSIGNED_INT:       gpu.Int(int64(word)),
			gonvml.VALUE_TYPE_SIGNED_INT:         gpu.Int(int64(int32(word))),
			gonvml.VALUE_TYPE_UNSIGNED_SHORT:     gpu.Int(int64(binary.NativeEndian.Uint16(value[:]))),
			gonvml.VALUE_TYPE_SIGNED_LONG_LONG:   gpu.Int(int64(bits)),
			gonvml.VALUE_TYPE_DOUBLE:             gpu.Float(math.Float64frombits(bits)),
			gonvml.VALUE_TYPE_UNSIGNED_LONG:      unsigned,
			gonvml.VALUE_TYPE_UNSIGNED_LONG_LONG: unsigned,
			gonvml.VALUE_TYPE_COUNT:              {},
		} {
			if got := decode(kind, value); got != want {
				t.Errorf("type %d, bits %#x: value = %v, want %v", kind, bits, got, want)
			}
		}
	})
}
