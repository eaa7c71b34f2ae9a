package exposition

import (
	"bytes"
	"math"
	"strconv"
	"strings"
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
	a := math.Abs(f)
	if micro := math.Round(a * 1e6); a >= 1e-4 && a < 1e6 && micro/1e6 == a {
		if f < 0 {
			dst = append(dst, '-')
		}
		dst = strconv.AppendInt(dst, int64(micro)/1e6, 10)
		point := len(dst)
		dst = strconv.AppendInt(dst, 1e6+int64(micro)%1e6, 10) // a 1 and six decimals; the point replaces the 1
		dst[point] = '.'
		return bytes.TrimRight(dst, "0")
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}

// appendLabel appends name="value". The name must be valid.
func appendLabel(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, '=', '"')
	dst = appendEscaped(dst, value, valueEscapes)
	return append(dst, '"')
}

// The replacers escape help texts and label values.
var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// appendEscaped appends s with escapes. Each byte of invalid UTF-8 becomes U+FFFD.
func appendEscaped(dst []byte, s string, escapes *strings.Replacer) []byte {
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	return append(dst, escapes.Replace(s)...)
}
