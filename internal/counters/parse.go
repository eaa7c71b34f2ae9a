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
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
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
	case bytes.IndexByte(data, 0) >= 0: // UTF-16 or binary
		return nil, nil, fmt.Errorf("%s: %w: save it as UTF-8", file, ErrEncoding)
	}
	p := parser{file: file}
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
	number   int // of the line
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
	problem.Text = strings.ToValidUTF8(problem.Text, "?")
	if runes := []rune(problem.Text); len(runes) > maxText {
		problem.Text = string(runes[:maxText]) + "…"
	}
	p.problems = append(p.problems, problem)
}

// line parses one line. The help text follows the second comma, quoted or not. Further columns become part of it.
// Spreadsheets leave commas at the end of a line, and quote comments.
func (p *parser) line(text string) {
	text = strings.TrimSpace(text)
	if comment, ok := strings.CutPrefix(text, "#"); ok {
		if name, ok := strings.CutPrefix(strings.TrimLeft(comment, "# \t"), "include:"); ok {
			p.include(strings.Trim(name, ", \t"))
		}
		return
	}
	if strings.Trim(text, ", \t") == "" || strings.HasPrefix(text, `"#`) {
		return
	}
	columns, err := gocsv.LazyCSVReader(strings.NewReader(text)).Read()
	for i := range columns {
		columns[i] = strings.TrimSpace(columns[i])
	}
	for len(columns) > 2 && columns[len(columns)-1] == "" {
		columns = columns[:len(columns)-1]
	}
	if err != nil || !utf8.ValidString(text) || len(columns) < 2 || columns[0] == "" || columns[1] == "" {
		p.report(Problem{Text: text, What: "malformed line", Expected: "FIELD, type, help, separated by commas"})
		return
	}
	typ, ok := ParseType(columns[1])
	unfit := strings.EqualFold(columns[1], "histogram") || strings.EqualFold(columns[1], "summary")
	if !ok && !unfit {
		p.report(Problem{Text: columns[1], What: unknownType, Expected: "counter, gauge, label or untyped"})
		return
	}
	help := strings.Join(columns[2:], "")
	if len(columns) > 3 {
		help = strings.TrimRight(strings.SplitN(text, ",", 3)[2], ", \t")
	}
	request, err := NewRequest(columns[0], typ, help)
	if problem := (Problem{}); errors.As(err, &problem) {
		p.report(problem)
		return
	}
	if unfit {
		p.report(Problem{Text: columns[1], What: "unsupported type", Warning: true,
			Expected: "counter, gauge, label or untyped; untyped is used"})
	}
	if len(columns) > 3 {
		p.report(Problem{Text: text, What: "more than three columns in", Warning: true,
			Expected: "FIELD, type, help; quote a help text that contains commas"})
	}
	request.Line = p.number
	p.add(request)
}

// find returns the index of the request with a name, or -1.
func (p *parser) find(name string) int {
	return slices.IndexFunc(p.requests, func(r Request) bool { return r.Name == name })
}

// add adds a request. Of two lines with the same name, the line whose type fits the value is used, or the first one if
// both do. A line of the file itself replaces an included one.
func (p *parser) add(request Request) {
	i := p.find(request.Name)
	switch {
	case i < 0:
		p.requests = append(p.requests, request)
		return
	case p.requests[i].Included:
		p.requests[i] = request
		return
	}
	first, _ := p.requests[i].wrongType()
	second, _ := request.wrongType()
	used, replaces := p.requests[i].Line, first != "" && second == ""
	if replaces {
		used = request.Line
		p.requests = append(slices.Delete(p.requests, i, i+1), request)
	}
	p.report(Problem{Text: request.Name, What: "duplicate line for", Warning: replaces,
		Expected: fmt.Sprintf("one line per name; line %d is used", used)})
}

// include adds the requests of a built-in file that the file does not have itself.
func (p *parser) include(name string) {
	content, ok := etc.Named(name)
	if !ok {
		p.report(Problem{Text: name, What: unknownFile, Expected: strings.Join(etc.Names, ", "), Warning: true})
		return
	}
	requests, _, _ := Parse(bytes.NewReader(content), name) // tests parse the embedded files
	for _, r := range requests {
		if p.find(r.Name) < 0 {
			r.Line, r.Included = p.number, true
			p.requests = append(p.requests, r)
		}
	}
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
