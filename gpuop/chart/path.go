package chart

import "strings"

// Path is the list of names that lead to a value, outermost first.
type Path []string

// escape is a variable because building it in every call of String would slow down sorting the table by 0.1 s.
var escape = strings.NewReplacer(`\`, `\\`, `.`, `\.`)

// noName represents a path with a single, empty name, which YAML allows. "" represents the root.
const noName = `""`

// String joins the names with dots. A dot inside a name is escaped as \., as for Helm's --set.
func (p Path) String() string {
	escaped := make([]string, len(p))
	for i, name := range p {
		escaped[i] = escape.Replace(name)
	}
	out := strings.Join(escaped, ".")
	switch {
	case len(p) == 1 && out == "":
		return noName
	case out == noName:
		return `\` + out
	}
	return out
}

// MarshalText implements encoding.TextMarshaler.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// ParsePath parses the output of Path.String. An empty string is the empty path.
func ParsePath(s string) Path {
	switch s {
	case "":
		return nil
	case noName:
		return Path{""}
	}
	var path Path
	var name []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '.' {
			path, name = append(path, string(name)), nil
			continue
		}
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		name = append(name, s[i])
	}
	return append(path, string(name))
}

// Setting is a value for a key of the chart.
type Setting struct {
	Path Path `json:"path"`
	// Value is nil, a bool, a number, a string, a list or a map. Maps from a file are empty, because each key in them
	// is a setting of its own.
	Value any `json:"value"`
	// Origin is the reason why a plan sets the value. It is empty for the user's own settings.
	Origin string `json:"why"`
}

// Set returns a Setting for a dotted path.
func Set(path string, value any, origin string) Setting {
	return Setting{ParsePath(path), value, origin}
}
