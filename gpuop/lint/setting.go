package lint

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// maxNodes bounds how much of a document is looked at: aliases of aliases can blow it up.
const maxNodes = 200_000

// A setting is one value that the user gives to the chart: a leaf of a file or a part of a --set flag.
type setting struct {
	chart.Setting
	// element says where inside the list at the path a flag goes on: [0].name.
	element string
	// called caches the name.
	called string
	// keys are the nodes of the names in the file, and shift the lines before its document.
	keys  []*yaml.Node
	shift int
	// from is the here-document that the setting stands in; nil for none.
	from *input.Document
	// node is the value in the file it came from; nil for a flag.
	node         *yaml.Node
	file         string
	line, column int
	// source is the assignment as it stands in a flag.
	source string
	// typed says that the flag makes true, numbers and null of words, as --set does.
	typed bool
	// unknown says that the value is made by the shell and cannot be read here.
	unknown bool
	// edit is how the setting is to be corrected, and added are settings that take its place.
	edit  fix.Edit
	added []string
	// asString says that the flag has to be --set-string, since a text is wanted.
	asString bool
	// asText is how the file that carries the setting says that a value is a text; "" for a flag.
	asText string
}

// name is the path as the user may write it after --set.
func (s *setting) name() string {
	if s.called == "" {
		s.called = s.Path.String() + s.element
	}
	return s.called
}

var listIndex = regexp.MustCompile(`\[[0-9]+\]`)

// edited reports whether the setting is to be written otherwise.
func (s *setting) edited() bool { return s.edit.Changes() || s.asString || len(s.added) > 0 }

// correction is the edit of a file in which the setting stands.
func (s *setting) correction() fix.Edit {
	e := s.edit
	e.Path = s.Path
	for _, a := range s.added {
		list, _ := ParseSet(a) // the rules write them
		e.Add = append(e.Add, list...)
	}
	return e
}

func (s *setting) text() string { return scalarText(s.Value) }

// scalarText prints a scalar as YAML would; what is not a scalar is "".
func scalarText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int:
		return strconv.Itoa(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case int64, uint64:
		return fmt.Sprint(v)
	}
	return ""
}

// flattener turns a values document into settings.
type flattener struct {
	reader   *fields.Reader
	file     string
	settings []*setting
	nodes    int
	// shift is how many lines of its file are before the document.
	shift int
}

// flatten returns the settings of a mapping, whose document begins shift lines into its file.
func flatten(reader *fields.Reader, file string, shift int, path chart.Path, n *yaml.Node) []*setting {
	f := &flattener{reader: reader, file: file, shift: shift}
	f.below(path, nil, n, n)
	return f.settings
}

// valuesText adds the settings of a values file, which may be a text inside another file from a line on. where names the
// text in findings about the whole.
func (r *run) valuesText(in *installation, file, where string, data []byte, line int) []*setting {
	reader := &fields.Reader{}
	var out []*setting
	if root := reader.Document(trimBOM(data)); root != nil {
		out = flatten(reader, file, line, nil, root)
		in.settings = append(in.settings, out...)
	}
	for _, f := range reader.Findings {
		f.File, f.Subject, f.Line = file, cmp.Or(f.Subject, where), f.Line+line
		if line > 0 && f.Line == line {
			f.Line++
		}
		r.findings = append(r.findings, f)
	}
	return out
}

func (f *flattener) below(path chart.Path, keys []*yaml.Node, at, n *yaml.Node) {
	f.nodes++
	if f.nodes > maxNodes {
		if f.nodes == maxNodes+1 {
			f.reader.Add("too-large", report.Failed, at, "", "the document holds more values than any chart reads; the rest is not looked at", "")
		}
		return
	}
	n = fields.Resolve(n)
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
		for _, field := range f.reader.Mapping(n, path.String()) {
			f.below(append(path[:len(path):len(path)], field.Name), append(keys[:len(keys):len(keys)], field.Key), field.Key, field.Value)
		}
		return
	}
	if len(path) == 0 {
		return // an empty document
	}
	s := &setting{Setting: chart.Setting{Path: path}, keys: keys, node: n, file: f.file, line: at.Line + f.shift, column: at.Column, shift: f.shift}
	if n.Kind == yaml.MappingNode {
		s.Value = map[string]any{}
	} else if err := n.Decode(&s.Value); err != nil || unknownNode(n) {
		s.unknown = true
	}
	f.settings = append(f.settings, s)
}

// substituted is a value that another program fills in: ${DRIVER_VERSION}.
var substituted = regexp.MustCompile(`\$(\{[A-Za-z_][A-Za-z0-9_.]*[}:]|___+|[A-Z_][A-Z0-9_]*$)`)

// unknownNode reports whether another program fills the value in.
func unknownNode(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == input.UnknownTag || substituted.MatchString(n.Value))
}

// A mistake is a finding and the settings it is about.
type mistake struct {
	report.Row
	settings []*setting
}

// An installation is one set of values on one version of the chart.
type installation struct {
	table    *chart.Table
	version  chart.Version
	settings []*setting
	mistakes []mistake
	// flags says that the settings are flags of a command, not lines of a file.
	flags bool
	// opaque says that there are more flags, which are not known.
	opaque bool
	// lifted says that the command was written for another release, whose defaults are left over in it.
	lifted bool
	// resource says that the settings are fields of a custom resource, which the chart fills in
	// whole.
	resource bool
	// route is how configs for the device plugin reach it.
	route sharing.Route
	// byParent and deep find the mistake about a wrong name again.
	byParent, deep map[string]int
	// byName are the settings of each name, and byElement those that set an element of the list at a path;
	// both are of the first indexed settings.
	byName, byElement map[string][]*setting
	indexed           int
	verdicts          map[*setting]chart.Verdict
}

// verdict is what the chart says of the setting's path.
func (in *installation) verdict(s *setting) chart.Verdict {
	v, known := in.verdicts[s]
	if !known {
		if in.verdicts == nil {
			in.verdicts = map[*setting]chart.Verdict{}
		}
		v = in.table.Judge(in.version, s.Path)
		in.verdicts[s] = v
	}
	return v
}

// index brings byName and byElement up to the settings.
func (in *installation) index() {
	if in.byName == nil || in.indexed > len(in.settings) {
		in.byName, in.byElement, in.indexed = map[string][]*setting{}, map[string][]*setting{}, 0
	}
	for _, s := range in.settings[in.indexed:] {
		in.byName[s.name()] = append(in.byName[s.name()], s)
		if s.element != "" {
			in.byElement[s.Path.String()] = append(in.byElement[s.Path.String()], s)
		}
	}
	in.indexed = len(in.settings)
}

// add reports a mistake at the first of the settings.
func (in *installation) add(id string, severity report.State, reason, fix, source string, settings ...*setting) {
	f := report.Row{ID: id, State: severity, Reason: reason, Fix: fix, Source: source}
	if len(settings) > 0 {
		names := make([]string, len(settings))
		for i, s := range settings {
			names[i] = s.name()
		}
		f.Subject = strings.Join(names, ", ")
		f.File, f.Line, f.Column = settings[0].file, settings[0].line, settings[0].column
	}
	in.mistakes = append(in.mistakes, mistake{f, settings})
}

// explicit returns the setting that decides the path, or nil when the user gives none.
func (in *installation) explicit(path string) *setting {
	in.index()
	all := in.byName[path]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// value returns what the chart sees at the path: the user's setting or the default. ok is false for neither.
func (in *installation) value(path string) (value any, ok bool) {
	if s := in.explicit(path); s != nil {
		return s.Value, !s.unknown
	}
	if list, known := in.elements(path); known {
		return list, list != nil
	}
	return in.table.Default(in.version, path)
}

// is reports whether the chart sees this boolean at the path.
func (in *installation) is(path string, want bool) bool {
	value, ok := in.value(path)
	if text, isText := value.(string); isText {
		return ok && text == strconv.FormatBool(want)
	}
	return ok && value == want
}

// below returns the user's settings inside the group, but for those named.
func (in *installation) below(group string, except ...string) []*setting {
	var out []*setting
next:
	for _, s := range in.settings {
		rest, found := strings.CutPrefix(s.name(), group+".")
		if !found {
			continue
		}
		for _, e := range except {
			if rest == e || strings.HasPrefix(rest, e+".") {
				continue next
			}
		}
		out = append(out, s)
	}
	return out
}

// findings returns what was found; of a command the mistakes of one kind become one finding.
func (in *installation) findings() []report.Row {
	var out []report.Row
	type kind struct {
		id, reason, fix string
		severity        report.State
	}
	at := map[kind]int{}
	more := map[int][]string{}
	for _, m := range in.mistakes {
		k := kind{m.ID, m.Reason, m.Fix, m.State}
		if i, seen := at[k]; in.flags && seen && m.Subject != "" {
			more[i] = append(more[i], m.Subject)
			continue
		}
		at[k] = len(out)
		out = append(out, m.Row)
	}
	for i, subjects := range more {
		out[i].Subject = strings.Join(append([]string{out[i].Subject}, subjects...), ", ")
	}
	return out
}

// elements puts together the list that flags such as tolerations[0].key make; known is false when
// no flag does, and the list is nil when a part of it is not known. Helm lets such flags replace
// the chart's list.
func (in *installation) elements(path string) (list []any, known bool) {
	in.index()
	for _, s := range in.byElement[path] {
		known = true
		m := elementText.FindStringSubmatch(s.element)
		if m == nil || s.unknown {
			return nil, true
		}
		at, err := strconv.Atoi(m[1])
		if err != nil || at > 1000 {
			return nil, true
		}
		for len(list) <= at {
			list = append(list, map[string]any{})
		}
		if m[2] == "" {
			list[at] = s.Value
		} else if entry, isMap := list[at].(map[string]any); isMap {
			entry[m[2]] = s.Value
		}
	}
	return list, known
}

var elementText = regexp.MustCompile(`^\[([0-9]+)\](?:\.([^.\[]+))?$`)
