package queries

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// ErrNoQueries means that a file has neither Prometheus rules nor the panels of a Grafana dashboard.
var ErrNoQueries = errors.New("neither Prometheus rules nor a Grafana dashboard")

// A Query is an expression of a file.
type Query struct {
	Line int    // from 1
	Name string // of the alert, recording rule or panel; "" for none
	Expr string
}

// Read returns the queries of rules (YAML), a dashboard (JSON), or Kubernetes objects that contain either, in the order
// of the file. The error wraps ErrNoQueries if there are none.
func Read(data []byte) ([]Query, error) {
	var found []Query
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; { // JSON is YAML
		var root yaml.Node
		err := decoder.Decode(&root)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoQueries, err)
		}
		collect(&root, "", &found)
	}
	if len(found) == 0 {
		return nil, ErrNoQueries
	}
	return found, nil
}

// collect appends the queries of a node. The name is that of the nearest alert, record or title around it.
func collect(node *yaml.Node, name string, found *[]Query) {
	if node.Kind != yaml.MappingNode {
		for _, child := range node.Content {
			collect(child, name, found)
		}
		return
	}
	for _, key := range []string{"title", "record", "alert"} {
		if n := text.NodeAt(node, key); n != nil && n.Value != "" {
			name = n.Value
		}
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Value == "expr" && value.Kind == yaml.ScalarNode {
			if expr := strings.TrimSpace(value.Value); expr != "" {
				*found = append(*found, Query{Line: value.Line, Name: name, Expr: expr})
			}
			continue
		}
		if isFile(key.Value, value) {
			list, _ := Read([]byte(value.Value)) // ignore the error: it is a file of another kind
			for _, q := range list {
				q.Line += value.Line // a block begins on the line after its key
				*found = append(*found, q)
			}
			continue
		}
		collect(value, name, found)
	}
}

// isFile reports whether the value of a key is a file as a block of text: in a ConfigMap, or the dashboard in a
// GrafanaDashboard of the Grafana Operator.
func isFile(key string, value *yaml.Node) bool {
	kinds := []string{"json", ".json", ".yaml", ".yml", ".rules"}
	return value.Style == yaml.LiteralStyle && slices.Contains(kinds, cmp.Or(path.Ext(key), key))
}

var (
	windowVariable = regexp.MustCompile(`\[\s*(\$\w+|\$\{[^}]+\}|\[\[\w+\]\])\s*(:[^\]]*)?\]`)
	scalarVariable = regexp.MustCompile(`\$__\w+|\$\{__\w+[^}]*\}`)
)

// withoutVariables replaces the variables of Grafana that stand for a duration. Variables within quotes may stay.
func withoutVariables(expr string) string {
	return scalarVariable.ReplaceAllString(windowVariable.ReplaceAllString(expr, "[5m]"), "5m")
}
