package dcgm

import (
	"bytes"
	"math"
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
func decode(f *gpu.Field, s *sample, text []byte) (v gpu.Value, err error) {
	switch {
	case s.status != 0:
		return v, reasonOf(int(s.status))
	case s.at <= 0:
		return v, nil
	}
	switch s.kind {
	case kindInt, kindTimestamp:
		n := int64(s.bits)
		if n >= blankInt {
			return v, reasonOfBlank(n - blankInt)
		}
		v = gpu.Int(n)
	case kindDouble:
		n := math.Float64frombits(s.bits)
		switch {
		case math.IsInf(n, 0):
			return v, nil
		case n >= blankDouble:
			return v, reasonOfBlank(int64(min(n-blankDouble, math.MaxInt32)))
		}
		v = gpu.Float(n)
	case kindText:
		if blank, err := blankText(text); blank || !f.Text {
			return v, err
		}
		return gpu.Text(strings.ToValidUTF8(string(text), "\uFFFD")), nil
	default: // a C structure
		return v, nil
	}
	if f.Text {
		v = gpu.Text(v.String())
	}
	return v, nil
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
