package recording

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Parse reads what Recording.Write wrote, compressed by gzip or not. file names it in errors, which
// are of type *text.SyntaxError where the content is wrong. What it returns can be played.
func Parse(r io.Reader, file string) (*Recording, error) {
	in := bufio.NewReader(r)
	p := reader{file: file, rec: &Recording{Pods: map[uint32]string{}}, rows: map[gpu.Entity]int{}, parents: map[gpu.Entity]bool{}, ids: map[gpu.FieldID]bool{}}
	var plain io.Reader = in
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, p.errorf("the compressed data is broken (%v)", err)
		}
		plain = z
	}
	if err := p.lines(io.LimitReader(plain, MaxSize+1)); err != nil {
		return nil, err
	}
	return p.rec, nil
}

// A reader reads a file line by line; check.go has what it expects of a line.
type reader struct {
	file  string
	line  int
	rec   *Recording
	ended bool

	facts   int                 // in all reads
	rows    map[gpu.Entity]int  // of the devices so far
	parents map[gpu.Entity]bool // of the devices so far
	ids     map[gpu.FieldID]bool
}

func (p *reader) errorf(format string, args ...any) error {
	return &text.SyntaxError{File: p.file, Line: p.line, Msg: fmt.Sprintf(format, args...)}
}

// begun reports whether the header was read.
func (p *reader) begun() bool { return p.rec.Interval != 0 }

func (p *reader) lines(r io.Reader) error {
	in, size := bufio.NewReader(r), 0
	for more := true; more; {
		text, err := in.ReadBytes('\n')
		size += len(text)
		if err := p.fits(len(text), size); err != nil {
			return err
		}
		p.line++
		if more = err == nil; !more && err != io.EOF {
			return p.errorf("the compressed data is broken or cut off (%v)", err)
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			if err := p.parse(text); err != nil {
				return err
			}
		}
	}
	switch {
	case p.ended:
		return nil
	case p.begun():
		return p.errorf("the recording ends without its last line: the file was cut off")
	default:
		p.line = 0
		return p.errorf("the file is empty, expected a recording of dcgm-exporter record")
	}
}

// fits refuses files and lines that are too long.
func (p *reader) fits(line, size int) error {
	switch {
	case size > MaxSize:
		return p.errorf("the recording is larger than %d MiB, which is the limit", MaxSize>>20)
	case line > maxLine:
		p.line++
		return p.errorf("the line is longer than %d MiB, which is the limit", maxLine>>20)
	default:
		return nil
	}
}

// parse takes one line.
func (p *reader) parse(text []byte) error {
	var l line
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		if !p.begun() {
			return p.errorf("found no recording of dcgm-exporter record (%s)", decodeError(err))
		}
		return p.errorf("%s", decodeError(err))
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		return p.errorf("column %d: found %.20q behind the object, expected the end of the line", dec.InputOffset()+1, rest)
	}
	found := l.members()
	switch {
	case len(found) != 1:
		return p.errorf("found %d members %v, expected one of recording, device, part, pair, field, owners, pod, read, end", len(found), found)
	case p.ended:
		return p.errorf("found %s behind the end of the recording", found[0])
	case !p.begun() && l.Header == nil:
		return p.errorf("found %s, expected the line that begins a recording", found[0])
	case len(p.rec.Reads) > 0 && l.Read == nil && l.End == nil:
		return p.errorf("found %s behind a read, expected another read or the end", found[0])
	}
	return takers[found[0]](p, &l)
}

// members returns the names of the members that are set.
func (l *line) members() []string {
	var found []string
	for v, i := reflect.ValueOf(*l), 0; i < v.NumField(); i++ {
		if !v.Field(i).IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			found = append(found, name)
		}
	}
	return found
}

// decodeError says what encoding/json found, in one clause with the column.
func decodeError(err error) string {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("column %d: %v", syntax.Offset, syntax)
	case errors.As(err, &typ):
		return fmt.Sprintf("column %d: %s is a %s, expected %s", typ.Offset, typ.Field, typ.Value, jsonKind(typ.Type))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the line is cut off"
	default:
		return strings.TrimPrefix(err.Error(), "json: ")
	}
}

func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	default:
		return "an integer (" + t.Kind().String() + ")"
	}
}
