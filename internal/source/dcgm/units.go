package dcgm

import (
	"math"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A unitChange says that an engine may answer a field in another unit than the one that go-dcgm's
// header documents for the id.
type unitChange struct {
	since         release  // the first engine that may
	before, after gpu.Unit // the unit of the header, and the other one
}

// changedUnits lists the ids whose unit is in doubt from DCGM 4.7 on. Its new ratios come as
// doubles (DCGM_FT_DOUBLE), the percentages of old as integers, so that the type of a value shows
// which of the two it is: an engine that left an id alone is read rightly too.
//
// GPU_UTIL (203) carries the name GPU_UTIL_RATIO in the headers of 4.6, where it still counts
// percent.
func changedUnits(id gpu.FieldID) (unitChange, bool) {
	switch id {
	case catalog.GPUUtil:
		return unitChange{since: release{4, 7}, before: "percent", after: "ratio"}, true
	default:
		return unitChange{}, false
	}
}

// asRead returns the unit of a value of this id from an engine of release r, and false if that is
// no question for the id.
func asRead(id gpu.FieldID, r release, double bool) (gpu.Unit, bool) {
	c, ok := changedUnits(id)
	if !ok {
		return "", false
	}
	if double && r != (release{}) && !r.before(c.since) {
		return c.after, true
	}
	return c.before, true
}

// convert returns v, read in one unit, in another.
func convert(v gpu.Value, from, to gpu.Unit) gpu.Value {
	n, ok := v.Number()
	switch {
	case !ok || from == to:
		return v
	case from == "percent" && to == "ratio":
		return gpu.Float(n / 100)
	case from == "ratio" && to == "percent":
		return gpu.Float(math.Round(n*1e8) / 1e6) // 0.57 is 57, not 56.99999999999999
	default:
		return v
	}
}
