package vocabulary

import (
	"regexp"
	"strings"
)

// variables are Grafana's: $x, ${x}, ${x:format}, ${x.field}, [[x]], [[x:format]].
var variables = regexp.MustCompile(`\$\w+|\$\{\w+(?:\.[^:}]+)?(?::[^}]*)?\}|\[\[\w+(?::\w+)?\]\]`)

// A span is a part of a text, from start up to end.
type span struct{ start, end int }

func (s span) overlaps(o span) bool { return s.start < o.end && o.start < s.end }

// A substituted text is one whose variables are replaced by what parses in their place, until edits
// are applied.
type substituted struct {
	text string
	vars []variable
}

type variable struct {
	span     // in held.text
	original string
}

// touches reports whether a variable stands in s.
func (h *substituted) touches(s span) bool {
	for _, v := range h.vars {
		if v.overlaps(s) {
			return true
		}
	}
	return false
}

// maxGuesses bounds for how many variables both readings are tried one by one.
const maxGuesses = 4

// substitute yields readings of an expression, until one is taken: a variable can stand for a
// number or for a name where both parse.
func substitute(expr string, take func(*substituted) bool) bool {
	h, open := substituteAs(expr, 0)
	if take(h) {
		return true
	}
	if open > maxGuesses {
		h, _ = substituteAs(expr, ^uint(0))
		return take(h)
	}
	for names := uint(1); names < 1<<open; names++ {
		if h, _ = substituteAs(expr, names); take(h) {
			return true
		}
	}
	return false
}

// substituteAs replaces the variables of an expression. Those that can be either stand for a name
// where their bit of names is set, else for a number; open says how many there are.
func substituteAs(expr string, names uint) (h *substituted, open int) {
	h = &substituted{}
	var out strings.Builder
	var c context
	at := 0
	for _, m := range variables.FindAllStringIndex(expr, -1) {
		if m[0] < at {
			continue
		}
		for i := at; i < m[0]; i++ {
			c.read(expr[i])
		}
		out.WriteString(expr[at:m[0]])
		stand := c.stand(expr[:m[0]], expr[m[1]:])
		if stand == "" {
			stand = "1"
			if names>>min(open, 63)&1 == 1 {
				stand = "held"
			}
			open++
		}
		start := out.Len()
		out.WriteString(stand)
		h.vars = append(h.vars, variable{span{start, out.Len()}, expr[m[0]:m[1]]})
		at = m[1]
	}
	out.WriteString(expr[at:])
	h.text = out.String()
	return h, open
}

// A context is what a reader of an expression knows of where it is.
type context struct {
	quote   byte // 0 outside strings
	escaped bool
	braces  bool // in a selector's braces
	square  bool // in a range
	comment bool
}

func (c *context) read(b byte) {
	switch {
	case c.comment:
		c.comment = b != '\n'
	case c.quote != 0:
		switch {
		case c.escaped:
			c.escaped = false
		case b == '\\' && c.quote != '`':
			c.escaped = true
		case b == c.quote:
			c.quote = 0
		}
	case b == '"' || b == '\'' || b == '`':
		c.quote = b
	case b == '#':
		c.comment = true
	case b == '{' || b == '}':
		c.braces = b == '{'
	case b == '[' || b == ']':
		c.square = b == '['
	}
}

var (
	offsetBefore = regexp.MustCompile(`(?i)\boffset\s*-?\s*$`)
	listBefore   = regexp.MustCompile(`(?i)\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*$`)
	callBehind   = regexp.MustCompile(`(?i)^\s*(?:\(|by\b|without\b)`)
)

// stand returns what stands for a variable between two parts of an expression, "" where a number
// and a name are both possible.
func (c *context) stand(before, behind string) string {
	first, last := byte(' '), byte(' ')
	if behind != "" {
		first = behind[0]
	}
	if before != "" {
		last = before[len(before)-1]
	}
	duration := func() string {
		switch {
		case isWord(first): // a unit is behind it
			return "5"
		case isDigit(last):
			return "m"
		default:
			return "5m"
		}
	}
	switch {
	case c.comment, c.quote != 0:
		return "held"
	case c.square, offsetBefore.MatchString(before):
		return duration()
	case c.braces, listBefore.MatchString(before), first == '{', first == '[':
		return "held"
	case callBehind.MatchString(behind) && !isWord(last):
		return "sum"
	case isWord(last) || isWord(first):
		return "held"
	default:
		return ""
	}
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func isWord(b byte) bool {
	return b == '_' || b == ':' || isDigit(b) || 'a' <= b|0x20 && b|0x20 <= 'z'
}
