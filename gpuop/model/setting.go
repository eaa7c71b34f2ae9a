// Package model has the settings that a user gives to the chart, each with the place where it stands, of
// files and of flags, on one release. A value that another program fills in is marked unknown.
//
// The package reads values files and the arguments of --set as Helm does, and judges neither.
package model

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// MaxNodes bounds how much of a document is looked at: aliases of aliases can blow it up.
const MaxNodes = 200_000

// A Setting is one value that the user gives to the chart: a leaf of a file or a part of a --set flag.
type Setting struct {
	chart.Setting
	// Element says where inside the list at the path a flag goes on: [0].name.
	Element string
	// Called caches the name.
	Called string
	// Keys are the nodes of the names in the file, and Shift the lines before its document.
	Keys  []*yaml.Node
	Shift int
	// Node is the value in the file it came from; nil for a flag.
	Node         *yaml.Node
	File         string
	Line, Column int
	// Source is the assignment as it stands in a flag.
	Source string
	// Typed says that the flag makes true, numbers and null of words, as --set does.
	Typed bool
	// Unknown says that the value is made by the shell and cannot be read here.
	Unknown bool
	// Perhaps says that the script gives the setting on one way through it, and not on another.
	Perhaps bool
	// AsText is how the file that carries the setting says that a value is a text; "" for a flag.
	AsText string
}

// Name is the path as the user may write it after --set.
func (s *Setting) Name() string {
	if s.Called == "" {
		s.Called = s.Path.String() + s.Element
	}
	return s.Called
}

// ListIndex is an index in the name of a setting: [0].
var ListIndex = regexp.MustCompile(`\[[0-9]+\]`)

// Text is the value as YAML prints it; "" for a list or group.
func (s *Setting) Text() string { return chart.Text(s.Value) }

// Assignment writes the setting behind a --set flag, with another path or value; nil is for one that stays.
func (s *Setting) Assignment(path chart.Path, value *string) string {
	if path == nil && value == nil {
		return s.Source
	}
	name, written, _ := strings.Cut(s.Source, "=")
	written = "=" + written
	if _, isList := s.Value.([]any); !isList {
		written = FormatSet(nil, s.Text())
	}
	if value != nil {
		written = FormatSet(nil, *value)
	}
	if path != nil {
		name, _ = strings.CutSuffix(FormatSet(path, ""), "=")
	}
	return name + written
}

// Flatten returns the settings of a mapping, whose document begins shift lines into its file.
func Flatten(reader *fields.Reader, file string, shift int, path chart.Path, n *yaml.Node) (out []*Setting) {
	nodes := 0
	var below func(path chart.Path, keys []*yaml.Node, at, n *yaml.Node)
	below = func(path chart.Path, keys []*yaml.Node, at, n *yaml.Node) {
		if nodes++; nodes == MaxNodes+1 {
			reader.Add("too-large", report.Failed, at, "", "the document holds more values than any chart reads; the rest is not looked at", "")
		}
		n = fields.Resolve(n)
		switch {
		case nodes > MaxNodes:
		case n.Kind == yaml.MappingNode && len(n.Content) > 0 && !UnknownNode(n):
			for _, field := range reader.Mapping(n, path.String()) {
				below(append(path[:len(path):len(path)], field.Name), append(keys[:len(keys):len(keys)], field.Key), field.Key, field.Value)
			}
		case len(path) > 0: // else the document is empty
			s := &Setting{Setting: chart.Setting{Path: path}, Keys: keys, Node: n, File: file, Line: at.Line + shift, Column: at.Column, Shift: shift}
			if s.Unknown = UnknownNode(n); n.Kind == yaml.MappingNode {
				s.Value = map[string]any{}
			} else if n.Decode(&s.Value) != nil {
				s.Unknown = true
			}
			out = append(out, s)
		}
	}
	below(path, nil, n, n)
	return out
}

// substituted is a value that another program fills in: ${DRIVER_VERSION}, {{ driver_version }}.
var substituted = regexp.MustCompile(`\{\{|\$(\{[A-Za-z_][A-Za-z0-9_.]*[}:]|___+|[A-Z_][A-Z0-9_]*$)`)

// UnknownNode reports whether another program fills the value in.
func UnknownNode(n *yaml.Node) bool {
	if n.Kind == yaml.MappingNode { // to YAML the action of a template is a mapping in a mapping
		return len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode
	}
	return n.Kind == yaml.ScalarNode && (n.Tag == input.UnknownTag || substituted.MatchString(n.Value))
}

// Values is one set of values on one version of the chart.
type Values struct {
	Table    *chart.Table
	Version  chart.Version
	Settings []*Setting
	// byName are the settings of each name, of the first indexed.
	byName   map[string][]*Setting
	indexed  int
	verdicts map[*Setting]chart.Verdict
}

// Verdict returns the chart's judgment of the setting's path.
func (in *Values) Verdict(s *Setting) chart.Verdict {
	v, known := in.verdicts[s]
	if !known {
		if in.verdicts == nil {
			in.verdicts = map[*Setting]chart.Verdict{}
		}
		v = in.Table.Judge(in.Version, s.Path)
		in.verdicts[s] = v
	}
	return v
}

// Named returns the settings of a name, in order.
func (in *Values) Named(name string) []*Setting {
	if in.indexed != len(in.Settings) {
		in.byName, in.indexed = map[string][]*Setting{}, len(in.Settings)
		for _, s := range in.Settings {
			in.byName[s.Name()] = append(in.byName[s.Name()], s)
		}
	}
	return in.byName[name]
}

// Explicit returns the setting that decides the path, or nil when the user gives none.
func (in *Values) Explicit(path string) *Setting {
	all := in.Named(path)
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// Value returns the value in force at the path: the user's setting or the default. ok is false for neither.
func (in *Values) Value(path string) (value any, ok bool) {
	if s := in.Explicit(path); s != nil {
		return s.Value, !s.Unknown && !s.Perhaps
	}
	return in.Table.Default(in.Version, path)
}

// Below returns the user's settings inside the group, but for those named.
func (in *Values) Below(group string, except ...string) []*Setting {
	var out []*Setting
	for _, s := range in.Settings {
		rest, found := strings.CutPrefix(s.Name(), group+".")
		excepted := slices.ContainsFunc(except, func(e string) bool { return rest == e || strings.HasPrefix(rest, e+".") })
		if found && !excepted {
			out = append(out, s)
		}
	}
	return out
}

// OperatorNamespace is the namespace of the operator, and the name of its chart.
const OperatorNamespace = "gpu-operator"

// Settings reads a values file, which may be empty, with --set arguments on top. Findings are the parts that could not be read.
func Settings(name string, data []byte, sets []string) ([]chart.Setting, []report.Row) {
	var out []chart.Setting
	reader := &fields.Reader{}
	if len(StripComments(data)) > 0 {
		root := reader.Document(TrimBOM(data))
		if inner, instead := ValuesOf(root); instead != "" {
			reader.Add("no-values", report.Failed, root, "", "the file is "+instead+", want values of the chart", "write its values to a file of their own")
		} else if root != nil {
			for _, s := range Flatten(reader, "", 0, nil, inner) {
				out = append(out, s.Setting)
			}
		}
	}
	for i := range reader.Findings {
		reader.Findings[i].File = name
	}
	for _, s := range sets {
		settings, err := ParseSet(s)
		if err != nil {
			reader.Findings = append(reader.Findings, report.Row{ID: "set-syntax", State: report.Failed, Subject: "--set " + s, Reason: err.Error()})
		}
		out = append(out, settings...)
	}
	return out, reader.Findings
}

// ValuesOf returns the operator's values in a document: all of it, or the group of an umbrella chart with
// the chart's name. instead names another kind of document; "" for values.
func ValuesOf(root *yaml.Node) (inner *yaml.Node, instead string) {
	kind := fields.Text(root, "kind")
	switch inner := fields.Get(root, OperatorNamespace); {
	case fields.Text(root, "apiVersion") != "" && kind != "":
		return nil, "a " + kind
	case root != nil && input.CarrierOf(root) != nil:
		return nil, "a " + input.Helmfile
	case inner != nil && inner.Kind == yaml.MappingNode:
		return WithoutEnabled(inner), ""
	}
	return root, ""
}

// ParseSet reads one --set argument by Helm's grammar. The settings before an error are returned with it.
func ParseSet(s string) ([]chart.Setting, error) {
	var out []chart.Setting
	assignments, err := Assignments(s, true)
	for _, a := range assignments {
		out = append(out, chart.Setting{Path: a.Path, Value: a.Value})
	}
	if err != nil {
		err = fmt.Errorf("--set %s: %w", s, err)
	}
	return out, err
}

// WithoutEnabled leaves out the key by which an umbrella chart switches a subchart.
func WithoutEnabled(n *yaml.Node) *yaml.Node {
	out := *n
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "enabled" {
			out.Content = slices.Concat(n.Content[:i], n.Content[i+2:])
			break
		}
	}
	return &out
}

var comment = regexp.MustCompile(`(?m)^\s*#.*$`)

// StripComments drops the lines that are comments.
func StripComments(data []byte) []byte { return comment.ReplaceAll(data, nil) }

// TrimBOM drops a byte order mark, which editors on Windows put first.
func TrimBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }
