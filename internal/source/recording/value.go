package recording

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Value is a gpu.Value in a file: a text in quotes, an integer without and a float with a point
// or an exponent, so that each comes back as it was.
type Value struct{ gpu.Value }

// MarshalJSON writes the value.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.IsText() {
		return json.Marshal(v.String())
	}
	text := v.String()
	if _, integer := v.Int64(); integer {
		return []byte(text), nil
	}
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		text += ".0"
	}
	return []byte(text), nil
}

// UnmarshalJSON reads a value; null, the empty text, and numbers beyond a float64 are none.
func (v *Value) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		v.Value = gpu.Text(s)
	} else if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		v.Value = gpu.Int(n)
	} else if x, err := strconv.ParseFloat(string(b), 64); err == nil {
		v.Value = gpu.Float(x)
	}
	if v.IsAbsent() {
		return fmt.Errorf("found the value %.40s, expected a number or a text", b)
	}
	return nil
}
