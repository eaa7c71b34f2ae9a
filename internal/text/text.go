// Package text handles text that people write: spelling suggestions, YAML with line numbers in errors, names that
// Prometheus accepts, and UUIDs.
package text

import (
	"strconv"
	"strings"
)

// A SyntaxError is an error in a line of a file.
type SyntaxError struct {
	File string // "" if the caller knows the file
	Line int    // 0 if the error concerns the whole file
	Msg  string
}

// Error returns "file:line: message", without unknown parts.
func (e *SyntaxError) Error() string {
	at := e.File
	switch {
	case e.Line != 0 && e.File != "":
		at += ":" + strconv.Itoa(e.Line)
	case e.Line != 0:
		at = "line " + strconv.Itoa(e.Line)
	case e.File == "":
		return e.Msg
	}
	return at + ": " + e.Msg
}

// IsUUID reports whether s is 8-4-4-4-12 hexadecimal digits (RFC 9562).
func IsUUID(s string) bool {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	return strings.Trim(s[:8]+s[9:13]+s[14:18]+s[19:23]+s[24:], "0123456789abcdefABCDEF") == ""
}

// LabelName returns name as a label name that Prometheus accepts: letters, digits and underscores, not starting with a
// digit. Other bytes become underscores. Several leading underscores become one, because names such as __name__
// are reserved. Valid names are unchanged.
func LabelName(name string) string {
	name = strings.ReplaceAll(MetricName(name), ":", "_")
	for strings.HasPrefix(name, "__") {
		name = name[1:]
	}
	return name
}

// MetricName returns name as a metric name that Prometheus accepts: letters, digits, underscores and colons, not
// starting with a digit. Other bytes become underscores.
func MetricName(name string) string {
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	var fixed []byte // nil while the name is valid
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == ':':
			continue
		}
		if fixed == nil {
			fixed = []byte(name)
		}
		fixed[i] = '_'
	}
	if fixed != nil {
		return string(fixed)
	}
	return name
}
