package chart

import "strings"

// A Path is the names that lead to a value, outermost first.
type Path []string

// escape is built once: the table sorts by String, and building it each time costs a tenth of a
// second.
var escape = strings.NewReplacer(`\`, `\\`, `.`, `\.`)

// noName is the path of one name that is empty, as YAML may have it; "" is the path of the root.
const noName = `""`

// String joins the names with dots; a dot inside a name is written \. as Helm's --set wants it.
func (p Path) String() string {
	if len(p) == 1 && p[0] == "" {
		return noName
	}
	escaped := make([]string, len(p))
	for i, name := range p {
		escaped[i] = escape.Replace(name)
	}
	out := strings.Join(escaped, ".")
	if out == noName {
		return `\` + out
	}
	return out
}

// MarshalText is String, for JSON.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// ParsePath splits a dotted path, the reverse of Path.String. An empty string is the empty path.
func ParsePath(s string) Path {
	if s == "" {
		return nil
	}
	if s == noName {
		return Path{""}
	}
	var path Path
	var name strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			name.WriteByte(s[i])
		case s[i] == '.':
			path = append(path, name.String())
			name.Reset()
		default:
			name.WriteByte(s[i])
		}
	}
	return append(path, name.String())
}

// A Setting is one value that a file, a flag or a plan gives to the chart.
type Setting struct {
	Path Path `json:"path"`
	// Value is nil, a bool, a number, a string, a list, or a map, which is empty where a file is
	// read.
	Value any `json:"value"`
	// Origin is why a plan has the value; "" for what the user gives.
	Origin string `json:"why"`
}

// Set makes a Setting of a dotted path.
func Set(path string, value any, origin string) Setting {
	return Setting{ParsePath(path), value, origin}
}
