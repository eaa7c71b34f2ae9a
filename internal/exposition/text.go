package exposition

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// appendNumber appends a number in the text format. Integers are written as integers, and floats in the shortest form
// that parses to the same float.
func appendNumber(dst []byte, v gpu.Value) []byte {
	if i, ok := v.Int64(); ok {
		return strconv.AppendInt(dst, i, 10)
	}
	f, _ := v.Number()
	// Fast path for the most frequent floats: whole numbers below a million. It does not cover -0.
	if i := int64(f); float64(i) == f && i > -1e6 && i < 1e6 && (i != 0 || !math.Signbit(f)) {
		return strconv.AppendInt(dst, i, 10)
	}
	// Fast path for numbers below a million with up to six decimals. If such a number parses to f, it is the shortest
	// form. This takes a quarter of the time of strconv.
	if a := math.Abs(f); a >= 1e-4 && a < 1e6 {
		if micro := math.Round(f * 1e6); micro/1e6 == f {
			return appendMicros(dst, int64(micro))
		}
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}

// appendMicros appends n millionths without trailing zeros.
func appendMicros(dst []byte, n int64) []byte {
	if n < 0 {
		dst = append(dst, '-')
		n = -n
	}
	dst = strconv.AppendInt(dst, n/1e6, 10)
	fraction := n % 1e6
	if fraction == 0 {
		return dst
	}
	dst = append(dst, '.')
	for unit := int64(1e5); fraction > 0; unit /= 10 {
		dst = append(dst, byte('0'+fraction/unit))
		fraction %= unit
	}
	return dst
}

// appendLabel appends name="value". The name must be valid.
func appendLabel(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, '=', '"')
	dst = appendText(dst, value, true)
	return append(dst, '"')
}

// appendText appends s with backslashes and newlines escaped. In a quoted text (a label value, not a help text), it
// also escapes double quotes. Invalid UTF-8 becomes U+FFFD.
func appendText(dst []byte, s string, quoted bool) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c == '\\' || c == '\n' || c == '"' && quoted {
				dst = append(dst, s[start:i]...)
				if c == '\n' {
					c = 'n'
				}
				dst = append(dst, '\\', c)
				start = i + 1
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, s[start:i]...)
			dst = utf8.AppendRune(dst, utf8.RuneError)
			start = i + 1
		}
		i += size
	}
	return append(dst, s[start:]...)
}
