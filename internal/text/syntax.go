package text

import "strconv"

// A SyntaxError is an error in a line of a file.
type SyntaxError struct {
	File string // "" if the caller knows the file
	Line int    // 0 if the error concerns the whole file
	Msg  string
}

// Error returns "file:line: message", without unknown parts.
func (e *SyntaxError) Error() string {
	switch {
	case e.Line == 0 && e.File == "":
		return e.Msg
	case e.Line == 0:
		return e.File + ": " + e.Msg
	case e.File == "":
		return "line " + strconv.Itoa(e.Line) + ": " + e.Msg
	default:
		return e.File + ":" + strconv.Itoa(e.Line) + ": " + e.Msg
	}
}
