package lint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

var errSet = errors.New("unreadable --set")

// An assignment is one key=value of a --set flag.
type assignment struct {
	path chart.Path
	// index says that the path goes on into a list: toolkit.env[0].name; the path is then the
	// list's.
	index bool
	// element is where inside the list the path goes on: [0].name.
	element string
	value   any
	raw     string
	// text is the assignment as it is written.
	text string
}

// parseSet reads the argument of --set by Helm's grammar: assignments separated by commas, names by
// dots, a backslash before a comma or dot that belongs to the name or value, {a,b} for a list and
// key[0] for an element. Without typed, as for --set-string and --set-file, every value stays text.
func parseSet(s string, typed bool) ([]assignment, error) {
	var out []assignment
	for len(s) > 0 {
		a, rest, err := parseAssignment(s, typed)
		if err != nil {
			return out, err
		}
		out = append(out, a)
		s = rest
	}
	return out, nil
}

func parseAssignment(s string, typed bool) (a assignment, rest string, err error) {
	var name strings.Builder
	i, list := 0, 0
key:
	for ; ; i++ {
		if i == len(s) {
			return a, "", fmt.Errorf("%w: %q has no value; want key=value", errSet, s)
		}
		switch s[i] {
		case '\\':
			if i++; i == len(s) {
				return a, "", fmt.Errorf("%w: %q ends with a backslash", errSet, s)
			}
			name.WriteByte(s[i])
		case '.':
			a.push(&name)
		case '[':
			closing := strings.IndexByte(s[i:], ']')
			if closing < 0 {
				return a, "", fmt.Errorf("%w: %q has a [ without ]", errSet, s)
			}
			if _, err := strconv.ParseUint(s[i+1:i+closing], 10, 16); err != nil {
				return a, "", fmt.Errorf("%w: %q is not the index of a list's element", errSet, s[i+1:i+closing])
			}
			if !a.index {
				a.push(&name)
				list = i
			}
			a.index = true
			i += closing
		case '=':
			break key
		case ',':
			return a, "", fmt.Errorf("%w: %q has no value; a comma inside a value is written \\,", errSet, s[:i])
		default:
			name.WriteByte(s[i])
		}
	}
	if a.index {
		a.element = s[list:i]
	} else {
		a.push(&name)
	}
	for _, n := range a.path {
		if n == "" {
			return a, "", fmt.Errorf("%w: %q has an empty name", errSet, s[:i])
		}
	}
	value, n, err := parseValue(s[i+1:], typed)
	if err != nil {
		return a, "", err
	}
	a.raw = s[i+1 : i+1+n]
	a.value = value
	a.text = s[:i+1+n]
	rest = s[i+1+n:]
	return a, strings.TrimPrefix(rest, ","), nil
}

func (a *assignment) push(name *strings.Builder) {
	if a.index {
		name.Reset()
		return
	}
	a.path = append(a.path, name.String())
	name.Reset()
}

// parseValue reads a value up to a comma, or a list up to its brace, and returns how much of s it
// was.
func parseValue(s string, typed bool) (value any, n int, err error) {
	read := func(text string) any {
		if typed {
			return typedValue(text)
		}
		return text
	}
	list, isList := []any{}, strings.HasPrefix(s, "{")
	var text strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case isList && i == 0:
		case c == '\\':
			if i++; i < len(s) { // helm drops the last one
				text.WriteByte(s[i])
			}
		case isList && (c == ',' || c == '}'):
			list = append(list, read(text.String()))
			text.Reset()
			if c == '}' {
				return list, i + 1, nil
			}
		case c == ',':
			return read(text.String()), i, nil
		default:
			text.WriteByte(c)
		}
	}
	if isList {
		return nil, 0, fmt.Errorf("%w: %q is a list without }", errSet, s)
	}
	return read(text.String()), len(s), nil
}

// typedValue is what Helm makes of an unquoted value: true, false and null in any case, a whole
// number without a leading zero, or the text.
func typedValue(s string) any {
	switch strings.ToLower(s) {
	case "true":
		return true
	case "false":
		return false
	case "null":
		return nil
	case "0":
		return 0
	}
	if s != "" && s[0] != '0' {
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
	}
	return s
}

// formatSet writes a path and value so that parseSet reads them back.
func formatSet(path chart.Path, value string) string {
	escaped := make([]string, len(path))
	for i, name := range path {
		escaped[i] = strings.NewReplacer(`\`, `\\`, `.`, `\.`, `,`, `\,`, `=`, `\=`, `[`, `\[`).Replace(name)
	}
	value = strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(value)
	if strings.HasPrefix(value, "{") {
		value = `\` + value
	}
	return strings.Join(escaped, ".") + "=" + value
}
