package dcgm

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The first blank value (dcgm_structs.h). It and all greater values are not measurements. The next three mean not
// found, not supported and no permission.
const (
	blankInt    int64   = 0x7ffffffffffffff0
	blankDouble float64 = 140737488355328

	blankNotSupported = 2
	blankNoPermission = 3
)

// decode returns the value of a sample for a field. If there is none, it returns an absent value and the engine's
// reason, if any. A blank may have status 0 and a new time.
func decode(f *gpu.Field, s *sample, text []byte) (gpu.Value, error) {
	if s.status != 0 {
		return gpu.Value{}, reasonOf(int(s.status))
	}
	if s.at <= 0 {
		return gpu.Value{}, nil
	}
	switch s.kind {
	case kindInt, kindTimestamp:
		v := int64(s.bits)
		switch {
		case v >= blankInt:
			return gpu.Value{}, reasonOfBlank(v - blankInt)
		case f.Text:
			return gpu.Text(strconv.FormatInt(v, 10)), nil
		}
		return gpu.Int(v), nil
	case kindDouble:
		v := math.Float64frombits(s.bits)
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
			return gpu.Value{}, nil
		case v >= blankDouble:
			return gpu.Value{}, reasonOfBlank(int64(min(v-blankDouble, math.MaxInt32)))
		case f.Text:
			return gpu.Text(strconv.FormatFloat(v, 'g', -1, 64)), nil
		}
		return gpu.Float(v), nil
	case kindText:
		if blank, err := blankText(text); blank || !f.Text {
			return gpu.Value{}, err
		}
		return gpu.Text(strings.ToValidUTF8(string(text), "\uFFFD")), nil
	}
	return gpu.Value{}, nil // a C structure
}

// reasonOf returns the error for the status of a sample, or nil if nothing was sampled yet.
func reasonOf(status int) error {
	switch err := meaning(status); err {
	case gpu.ErrNotSupported, gpu.ErrPermission, gpu.ErrLost, gpu.ErrTimeout:
		return err
	}
	return nil
}

// reasonOfBlank returns the error for a blank, by its distance from the first blank.
func reasonOfBlank(above int64) error {
	switch above {
	case blankNotSupported:
		return gpu.ErrNotSupported
	case blankNoPermission:
		return gpu.ErrPermission
	}
	return nil
}

// blankText reports whether a string is empty or one of DCGM's blanks, such as "<<<NULL>>>".
func blankText(text []byte) (bool, error) {
	switch {
	case len(text) == 0:
		return true, nil
	case !bytes.HasPrefix(text, []byte("<<<")) || !bytes.Contains(text, []byte(">>>")):
		return false, nil
	case bytes.HasPrefix(text, []byte("<<<NOT_SUPPORTED")):
		return true, gpu.ErrNotSupported
	case bytes.HasPrefix(text, []byte("<<<NOT_PERM")):
		return true, gpu.ErrPermission
	}
	return true, nil
}

// utilization converts a value of DCGM_FI_DEV_GPU_UTIL (203) to a unit, percent or ratio. Engines before 4.7 report
// integer percentages; later ones report ratios as doubles.
func utilization(v gpu.Value, double bool, unit gpu.Unit) gpu.Value {
	n, ok := v.Number()
	switch {
	case !ok || double == (unit == "ratio"):
		return v
	case double:
		return gpu.Float(math.Round(n*1e8) / 1e6) // 0.57 is 57, not 56.99999999999999
	default:
		return gpu.Float(n / 100)
	}
}
