package counters

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gocarina/gocsv"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// MaxSize is the maximum size of a counters file in bytes, the limit of a Kubernetes ConfigMap.
const MaxSize = 1 << 20

const (
	maxProblems = 200 // per file; a last problem says that there are more
	maxText     = 120 // maximum characters of a line that a problem quotes
)

// Errors about a whole file.
var (
	ErrNoCounters = errors.New("no usable counter") // no line requests a counter
	ErrTooLarge   = errors.New("larger than 1 MiB")
	ErrEncoding   = errors.New("not UTF-8 text")
)

// A line holds the columns of one line of the file.
type line struct{ Field, Type, Help string }

// Parse reads a counters file: lines of "FIELD, type, help", where # starts a comment. A quoted help text ends with its
// line, so that a missing quote costs only one line.
//
// The comment "# include: NAME" requests what a built-in file requests; NAME is one of etc.Names. A line of the file
// itself replaces one of the same name.
//
// Parse returns the valid lines in order, and the problems and warnings. The error is about the whole file: it cannot
// be read, or it wraps ErrNoCounters, ErrTooLarge or ErrEncoding. With ErrNoCounters, problems are returned too.
func Parse(r io.Reader, file string) ([]Request, []Problem, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	case len(data) > MaxSize:
		return nil, nil, fmt.Errorf("%s: %w", file, ErrTooLarge)
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		const utf16 = "%s: %w: it starts with a UTF-16 byte order mark; save it as UTF-8"
		return nil, nil, fmt.Errorf(utf16, file, ErrEncoding)
	case bytes.IndexByte(data, 0) >= 0:
		return nil, nil, fmt.Errorf("%s: %w: it contains NUL bytes", file, ErrEncoding)
	}
	p := parser{file: file, seen: make(map[string]int)}
	text := strings.TrimPrefix(string(data), "\ufeff")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	for text := range strings.SplitSeq(text, "\n") {
		p.number++
		p.line(text)
	}
	if p.omitted > 0 {
		more := fmt.Sprintf("%d more problems like these", p.omitted)
		p.problems = append(p.problems, Problem{File: file, What: more})
	}
	if len(p.requests) > 0 {
		return p.requests, p.problems, nil
	}
	if len(p.problems) > 0 {
		return nil, p.problems, fmt.Errorf("%w: %w", ErrNoCounters, p.problems[0])
	}
	return nil, nil, fmt.Errorf("%s: %w: it contains only comments", file, ErrNoCounters)
}

// A parser parses one file.
type parser struct {
	file     string
	number   int
	seen     map[string]int // line number of each name
	requests []Request
	problems []Problem
	omitted  int
}

func (p *parser) report(problem Problem) {
	if len(p.problems) >= maxProblems {
		p.omitted++
		return
	}
	problem.File, problem.Line = p.file, p.number
	problem = problem.withNearest()
	if runes := []rune(problem.Text); len(runes) > maxText {
		problem.Text = string(runes[:maxText]) + "…"
	}
	p.problems = append(p.problems, problem)
}

// line parses one line.
func (p *parser) line(text string) {
	text = strings.TrimSpace(text)
	switch {
	case strings.Trim(text, ", \t") == "":
		return
	case strings.HasPrefix(text, "#"):
		if name, ok := strings.CutPrefix(strings.TrimLeft(text, "# \t"), "include:"); ok {
			p.include(strings.TrimRight(name, ", \t"))
		}
		return
	case strings.HasPrefix(text, `"#`): // a comment that a spreadsheet quoted
		return
	}
	l, tooMany, problem := split(text)
	if problem.What != "" {
		p.report(problem)
		return
	}
	typ, ok := ParseType(l.Type)
	if !ok && !unfitType(l.Type) {
		p.report(Problem{Text: l.Type, What: unknownType, Expected: "counter, gauge, label or untyped"})
		return
	}
	request, problem := resolve(l.Field, typ, l.Help)
	if problem.What != "" {
		p.report(problem)
		return
	}
	request.Line = p.number
	if first, twice := p.seen[request.Name]; twice {
		p.second(request, first)
		return
	}
	if !ok {
		p.report(Problem{Text: l.Type, What: "unsupported type", Warning: true,
			Expected: "counter, gauge, label or untyped; untyped is used"})
	}
	if tooMany > 0 {
		p.report(Problem{Text: text, What: plural(tooMany, "column") + " too many in", Warning: true,
			Expected: "FIELD, type, help; quote a help text that contains commas"})
	}
	p.seen[request.Name] = p.number
	p.requests = append(p.requests, request)
}

// second handles another line with the same name as line first. The line whose type fits the value is used, or the
// first one if both do.
func (p *parser) second(request Request, first int) {
	i := slices.IndexFunc(p.requests, func(r Request) bool { return r.Name == request.Name })
	if p.requests[i].Included {
		p.requests[i] = request
		p.seen[request.Name] = request.Line
		return
	}
	unfit, _ := p.requests[i].wrongType()
	if what, _ := request.wrongType(); unfit == "" || what != "" {
		p.report(Problem{Text: request.Name, What: "duplicate line for",
			Expected: fmt.Sprintf("one line per name; line %d is used", first)})
		return
	}
	const replaced = "one line per name; this one is used instead of line %d, since its type %s fits the value"
	p.report(Problem{Text: request.Name, What: "duplicate line for", Warning: true,
		Expected: fmt.Sprintf(replaced, first, request.Type)})
	p.requests = slices.Delete(p.requests, i, i+1)
	p.seen[request.Name] = request.Line
	p.requests = append(p.requests, request)
}

// include adds the requests of a built-in file that the file does not have itself.
func (p *parser) include(name string) {
	name = strings.TrimSpace(name)
	content, ok := etc.Named(name)
	if !ok {
		p.report(Problem{Text: name, What: "no built-in counters file", Expected: strings.Join(etc.Names, ", "),
			Nearest: text.Nearest(name, etc.Names), Warning: true})
		return
	}
	requests, _, _ := Parse(bytes.NewReader(content), name) // tests parse the embedded files
	for _, r := range requests {
		if p.seen[r.Name] > 0 {
			continue
		}
		r.Line, r.Included = p.number, true
		p.seen[r.Name] = p.number
		p.requests = append(p.requests, r)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "one " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// split splits a line into its three columns. The help text follows the second comma, quoted or not. Further columns
// become part of the help text, and tooMany counts them. Spreadsheets leave commas at the end of a line.
func split(text string) (l line, tooMany int, problem Problem) {
	const columns = "FIELD, type, help"
	if !utf8.ValidString(text) {
		return line{}, 0, Problem{Text: strings.ToValidUTF8(text, "?"), What: "invalid UTF-8 in", Expected: columns}
	}
	record, err := gocsv.LazyCSVReader(strings.NewReader(text)).Read()
	if err != nil || len(record) == 0 {
		return line{}, 0, Problem{Text: text, What: "malformed line", Expected: columns}
	}
	for len(record) > 2 && strings.TrimSpace(record[len(record)-1]) == "" {
		record = record[:len(record)-1]
	}
	for i := range record {
		record[i] = strings.TrimSpace(record[i])
	}
	if len(record) < 2 || record[0] == "" || record[1] == "" {
		return line{}, 0, Problem{Text: text, What: "malformed line", Expected: columns + ", separated by commas"}
	}
	l = line{Field: record[0], Type: record[1]}
	switch {
	case len(record) == 3:
		l.Help = record[2]
	case len(record) > 3:
		l.Help = strings.TrimRight(strings.SplitN(text, ",", 3)[2], ", \t")
		tooMany = len(record) - 3
	}
	return l, tooMany, Problem{}
}

// ParseType returns the metric type that a word names, ignoring case, and whether there is one.
func ParseType(word string) (gpu.MetricType, bool) {
	for _, typ := range []gpu.MetricType{gpu.MetricCounter, gpu.MetricGauge, gpu.MetricLabel, gpu.MetricUntyped} {
		if strings.EqualFold(word, typ.String()) {
			return typ, true
		}
	}
	return gpu.MetricUntyped, false
}

// unfitType reports whether the word is a Prometheus type that a single value cannot have.
func unfitType(word string) bool {
	return strings.EqualFold(word, "histogram") || strings.EqualFold(word, "summary")
}

// resolve returns the request for a name, or a problem.
func resolve(name string, typ gpu.MetricType, help string) (Request, Problem) {
	help = strings.Join(strings.Fields(help), " ") // join lines
	request := Request{Name: name, Type: typ, Help: help}
	if f := catalog.FamilyNamed(name); f != nil && f.Group == catalog.Requested {
		if typ == gpu.MetricLabel {
			const what = "type label for the exporter family"
			return Request{}, Problem{Text: name, What: what, Expected: "type gauge or counter"}
		}
		request.Family = f
		if help == "" {
			request.Help = f.HelpLine()
		}
		return request, Problem{}
	}
	named, ok := catalog.Lookup(name)
	if !ok {
		return Request{}, Problem{Text: name, What: unknownField, Expected: "a DCGM field or an exporter family"}
	}
	if problem := unfit(named, typ); problem.What != "" {
		return Request{}, problem
	}
	request.Named = named
	if help == "" {
		request.Help = helpFor(named)
	}
	return request, Problem{}
}

// unfit returns why a known field cannot be exported as typ, or the zero Problem if it can.
func unfit(n catalog.Named, typ gpu.MetricType) Problem {
	switch {
	case n.Entry.Type == catalog.Marker:
		return Problem{Text: n.Name, What: "name of a range of IDs", Expected: "the name of a field"}
	case n.Entry.Type == catalog.Binary:
		const expected = "a field that holds a number or a text"
		return Problem{Text: n.Name, What: "field that holds a structure", Expected: expected}
	case n.Entry.Levels == 0:
		return Problem{
			Text: n.Name, What: "field of vGPUs, which the exporter does not watch",
			Expected: "a field of GPUs, MIG instances, links, switches, CPUs, CPU cores, ConnectX cards or the machine",
		}
	case n.Entry.Type == catalog.Text && typ != gpu.MetricLabel:
		return Problem{Text: n.Name, What: "type " + typ.String() + " for the text", Expected: "type label"}
	default:
		return Problem{}
	}
}
