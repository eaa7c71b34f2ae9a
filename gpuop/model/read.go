package model

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

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
