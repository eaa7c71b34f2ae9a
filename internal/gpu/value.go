package gpu

import (
	"math"
	"strconv"
)

// A Value is one measurement: an int64, a float64 or a string. The zero Value is absent.
type Value struct {
	text string
	bits uint64
	kind valueKind
}

type valueKind uint8

const (
	absent valueKind = iota
	integer
	float
	text
)

// Int returns a Value that holds an integer.
func Int(v int64) Value { return Value{kind: integer, bits: uint64(v)} }

// Float returns a Value that holds a float. NaN gives the absent Value.
func Float(v float64) Value {
	if math.IsNaN(v) {
		return Value{}
	}
	return Value{kind: float, bits: math.Float64bits(v)}
}

// Text returns a Value that holds a string. The empty string gives the absent Value.
func Text(v string) Value {
	if v == "" {
		return Value{}
	}
	return Value{kind: text, text: v}
}

// IsAbsent reports whether there is no value.
func (v Value) IsAbsent() bool { return v.kind == absent }

// Int64 returns the integer and whether the Value holds one.
func (v Value) Int64() (int64, bool) { return int64(v.bits), v.kind == integer }

// IsText reports whether the Value holds a string.
func (v Value) IsText() bool { return v.kind == text }

// Number returns the value as a float64, and whether it holds a number.
func (v Value) Number() (float64, bool) {
	switch v.kind {
	case integer:
		return float64(int64(v.bits)), true
	case float:
		return math.Float64frombits(v.bits), true
	default:
		return 0, false
	}
}

// String returns the value as a label value. It is empty for the absent Value.
func (v Value) String() string {
	switch v.kind {
	case integer:
		return strconv.FormatInt(int64(v.bits), 10)
	case float:
		return strconv.FormatFloat(math.Float64frombits(v.bits), 'g', -1, 64)
	default:
		return v.text
	}
}

// Scale returns the number multiplied by factor. Strings and absent values are returned unchanged.
//
// An integer stays an integer if the product is exact, so that byte counts keep all digits. If 1/factor is an integer,
// Scale divides by it instead: 35 percent becomes 0.35, not 0.35000000000000003.
func (v Value) Scale(factor float64) Value {
	switch v.kind {
	case integer:
		i := int64(v.bits)
		if factor == math.Trunc(factor) && math.Abs(factor) < 1<<53 {
			f := int64(factor)
			if p := i * f; f == 0 || (p/f == i && (i == 0 || (p < 0) == ((i < 0) != (f < 0)))) {
				return Int(p)
			}
		}
		return Float(times(float64(i), factor))
	case float:
		return Float(times(math.Float64frombits(v.bits), factor))
	default:
		return v
	}
}

// times returns x × factor. It divides by 1/factor if that is an integer.
func times(x, factor float64) float64 {
	if divisor := math.Round(1 / factor); math.Abs(factor) < 1 && divisor < 1<<53 && 1/divisor == factor {
		return x / divisor
	}
	return x * factor
}
