// Package model represents the settings that users pass to the chart in files and flags, with their positions. It
// parses values files and --set arguments as Helm does, and does not check them. Values that another program fills in
// are marked as unknown.
package model

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/strvals"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
)

// MaxNodes limits how many nodes of a document are visited, because nested aliases can expand exponentially.
const MaxNodes = 200_000

// Setting is one value that a user sets: a leaf of a values file, or an assignment in a --set flag.
type Setting struct {
	chart.Setting
	// Element is the rest of the name inside a list, such as [0].name. It is only set for flags.
	Element string
	// Called caches the result of Name.
	Called string
	// Keys are the nodes of the path's names; nil for a flag. Shift is the number of lines in the file before the
	// document.
	Keys  []*yaml.Node
	Shift int
	// Node is the value in the file; nil for a flag.
	Node         *yaml.Node
	File         string
	Line, Column int
	// Source is the assignment as written in the flag; empty for a file.
	Source string
	// Typed means that numbers, booleans and null are parsed, as by --set. It is false for --set-string and for files.
	Typed bool
	// Unknown means that the shell or another program fills in the value.
	Unknown bool
	// Perhaps means that the setting is made only in some branches of the script.
	Perhaps bool
	// AsText is the suggested fix for a value that must be a string. It is empty for flags: they have --set-string.
	AsText string
}

// Name returns the path as written after --set.
func (s *Setting) Name() string {
	if s.Called == "" {
		s.Called = s.Path.String() + s.Element
	}
	return s.Called
}

// ListIndex matches a list index in a setting's name, such as [0].
var ListIndex = regexp.MustCompile(`\[[0-9]+\]`)

// Text returns the value as YAML, or "" for a list or group.
func (s *Setting) Text() string { return chart.Text(s.Value) }

// Assignment formats a setting from a flag as a --set argument. A non-nil path or value replaces the setting's own.
func (s *Setting) Assignment(path chart.Path, value *string) string {
	name, written, isComplete := strings.Cut(s.Source, "=")
	if path != nil {
		name = setName.Replace(path.String())
	}
	if value != nil {
		written = setValue(*value)
	}
	if !isComplete && value == nil {
		return name
	}
	return name + "=" + written
}

// Flatten returns the settings in a mapping. path is the path of the mapping. shift is the number of lines in the file
// before the YAML document.
func Flatten(reader *fields.Reader, file string, shift int, path chart.Path, n *yaml.Node) (out []*Setting) {
	nodes := 0
	var below func(path chart.Path, keys []*yaml.Node, at, n *yaml.Node)
	below = func(path chart.Path, keys []*yaml.Node, at, n *yaml.Node) {
		n = fields.Resolve(n)
		switch nodes++; {
		case nodes == MaxNodes+1:
			reason := fmt.Sprintf("the document has more than %d values; the rest was skipped", MaxNodes)
			reader.Add(tooLarge, check.Error, at, "", reason, "")
		case nodes > MaxNodes:
		case n.Kind == yaml.MappingNode && len(n.Content) > 0 && !UnknownNode(n):
			for _, f := range reader.Mapping(n, path.String()) {
				below(append(slices.Clip(path), f.Name), append(slices.Clip(keys), f.Key), f.Key, f.Value)
			}
		case len(path) > 0: // an empty path means an empty document
			s := &Setting{
				Setting: chart.Setting{Path: path}, Keys: keys, Node: n, Unknown: UnknownNode(n),
				File: file, Line: at.Line + shift, Column: at.Column, Shift: shift,
			}
			if n.Kind == yaml.MappingNode {
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

// substituted matches values that another program fills in: ${DRIVER_VERSION}, {{ driver_version }}.
var substituted = regexp.MustCompile(`\{\{|\$(\{[A-Za-z_][A-Za-z0-9_.]*[}:]|___+|[A-Z_][A-Z0-9_]*$)`)

// UnknownNode reports whether another program fills in the node's value.
func UnknownNode(n *yaml.Node) bool {
	if n.Kind == yaml.MappingNode { // YAML parses {{ expression }} as nested mappings
		return len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode
	}
	return n.Kind == yaml.ScalarNode && (n.Tag == input.UnknownTag || substituted.MatchString(n.Value))
}

// Values is a set of settings for a release of the chart.
type Values struct {
	Table    *chart.Table
	Version  chart.Version
	Settings []*Setting
}

// Match looks up a setting's path in the chart.
func (v *Values) Match(s *Setting) chart.Match { return v.Table.Lookup(v.Version, s.Path) }

// Explicit returns the last setting that the user makes at the path, or nil.
func (v *Values) Explicit(path string) *Setting {
	for _, s := range slices.Backward(v.Settings) {
		if s.Name() == path {
			return s
		}
	}
	return nil
}

// Value returns the effective value at the path: the user's or, without one, the default. ok is false if the value does
// not exist or is uncertain.
func (v *Values) Value(path string) (value any, ok bool) {
	if s := v.Explicit(path); s != nil {
		return s.Value, !s.Unknown && !s.Perhaps
	}
	return v.Table.Default(v.Version, path)
}

// Below returns the user's settings inside a group. Settings at or below the excepted paths, which are relative to the
// group, are omitted.
func (v *Values) Below(group string, except ...string) (out []*Setting) {
	for _, s := range v.Settings {
		rest, found := strings.CutPrefix(s.Name(), group+".")
		isWithin := func(e string) bool { return strings.HasPrefix(rest+".", e+".") }
		if found && !slices.ContainsFunc(except, isWithin) {
			out = append(out, s)
		}
	}
	return out
}

// OperatorNamespace is the operator's default namespace. The chart has the same name.
const OperatorNamespace = "gpu-operator"

// Settings returns the settings of a values file, followed by the settings of --set arguments. data may be empty. All
// findings are errors, for example a syntax error or a file that is not a values file.
func Settings(name string, data []byte, sets []string) (out []chart.Setting, findings []check.Finding) {
	var all []*Setting
	reader := &fields.Reader{}
	if len(StripComments(data)) > 0 {
		root := reader.Document(data)
		if inner, otherKind := ValuesOf(root); otherKind != "" {
			reason := "the file is " + otherKind + ", expected values of the chart"
			reader.Add(noValues, check.Error, root, "", reason, "write its values to a file of their own")
		} else if root != nil {
			all = Flatten(reader, "", 0, nil, inner)
		}
	}
	for i := range reader.Findings {
		reader.Findings[i].File = name
	}
	for _, s := range sets {
		assignments, err := Assignments(s, true)
		if err != nil {
			reader.Add(SetSyntax, check.Error, nil, "--set "+s, err.Error(), "")
		}
		all = append(all, assignments...)
	}
	for _, s := range all {
		out = append(out, s.Setting)
	}
	return out, reader.Findings
}

// ValuesOf returns the operator's values in a document: the group "gpu-operator" in an umbrella chart's values, or else
// the whole document. If the document is not a values file, inner is nil and otherKind describes it, such as "a Pod".
func ValuesOf(root *yaml.Node) (inner *yaml.Node, otherKind string) {
	kind := fields.Text(root, "kind")
	switch inner := fields.Get(root, OperatorNamespace); {
	case fields.Text(root, "apiVersion") != "" && kind != "":
		return nil, "a " + kind
	case root != nil && input.CarrierOf(root) != nil:
		return nil, "a " + input.CarrierOf(root).Kinds
	case inner != nil && inner.Kind == yaml.MappingNode:
		return WithoutEnabled(inner), ""
	}
	return root, ""
}

// WithoutEnabled returns a copy of a mapping without the key "enabled", with which an umbrella chart enables a
// subchart.
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

// StripComments removes comment lines.
func StripComments(data []byte) []byte { return comment.ReplaceAll(data, nil) }

var errSet = errors.New("unreadable --set")

// assignment matches the first assignment of a --set argument: its name, the rest of the name from a list index on, and
// the value with its equals sign. The assignment ends at a comma, except in {…}.
var assignment = regexp.MustCompile(`(?s)^((?:\\.?|[^\\=\[,])*)((?:\\.?|[^\\=,])*)` +
	`(=(?:\{(?:\\.?|[^\\}])*\}?)?(?:\\.?|[^\\,])*)?`)

// Assignments splits a --set argument with Helm's parser. If typed is false, as for --set-string and --set-file, all
// values are strings. After an error, it returns the settings parsed so far.
func Assignments(s string, typed bool) (out []*Setting, err error) {
	parse := strvals.ParseString
	if typed {
		parse = strvals.Parse
	}
	for s != "" {
		m := assignment.FindStringSubmatch(s)
		s = strings.TrimPrefix(s[len(m[0]):], ",")
		a := &Setting{Source: m[0], Element: m[2], Typed: typed}
		tree, err := parse(a.Source)
		if err != nil {
			return out, fmt.Errorf("%w: %w", errSet, err)
		}
		for len(tree) == 1 {
			for name, value := range tree {
				a.Path, a.Value = append(a.Path, name), value
			}
			tree, _ = a.Value.(map[string]any)
		}
		if len(a.Path) == 0 || slices.Contains(a.Path, "") {
			return out, fmt.Errorf("%w: %q has no name, or an empty one", errSet, a.Source)
		}
		if a.Element != "" {
			alone, _ := parse("v" + m[3])
			a.Value = alone["v"]
		}
		out = append(out, a)
	}
	return out, nil
}

// setName escapes a path for the name of a --set argument.
var setName = strings.NewReplacer(`,`, `\,`, `=`, `\=`, `[`, `\[`)

// setValue formats the value of a --set argument.
func setValue(value string) string {
	value = strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(value)
	if strings.HasPrefix(value, "{") {
		return `\` + value
	}
	return value
}
