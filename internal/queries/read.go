package queries

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ErrNoQueries means that a file has neither Prometheus rules nor the panels of a Grafana dashboard.
var ErrNoQueries = errors.New("neither rules of Prometheus nor a dashboard of Grafana")

// A Query is an expression of a file.
type Query struct {
	Line int    // from 1
	Name string // of the alert, recording rule or panel; "" for none
	Expr string
}

// IsRules reports whether a YAML file has Prometheus rules, possibly as a PrometheusRule of the Prometheus Operator.
func IsRules(data []byte) bool {
	var file struct {
		Groups []yaml.Node `yaml:"groups"`
		Spec   struct {
			Groups []yaml.Node `yaml:"groups"`
		} `yaml:"spec"`
	}
	return yaml.Unmarshal(data, &file) == nil && len(file.Groups)+len(file.Spec.Groups) > 0
}

// Read returns the queries of a rules file (YAML) or a dashboard (JSON), in the order of the file. The error wraps
// ErrNoQueries if there are none.
func Read(data []byte) ([]Query, error) {
	var root yaml.Node // JSON is YAML
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoQueries, err)
	}
	var found []Query
	collect(&root, "", &found)
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
	for i := 0; i+1 < len(node.Content); i += 2 {
		switch key, value := node.Content[i].Value, node.Content[i+1]; key {
		case "alert", "record", "title":
			if value.Kind == yaml.ScalarNode && value.Value != "" {
				name = value.Value
			}
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
		collect(value, name, found)
	}
}

var (
	windowVariable = regexp.MustCompile(`\[\s*(\$\w+|\$\{[^}]+\}|\[\[\w+\]\])\s*(:[^\]]*)?\]`)
	scalarVariable = regexp.MustCompile(`\$__\w+|\$\{__\w+[^}]*\}`)
)

// withoutVariables replaces the variables of Grafana that stand for a duration. Variables within quotes may stay.
func withoutVariables(expr string) string {
	return scalarVariable.ReplaceAllString(windowVariable.ReplaceAllString(expr, "[5m]"), "5m")
}
