package values

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// Write renders values as YAML in the order given, each with its reason as a comment above, and
// head as a comment at the top.
func Write(head string, values []chart.Setting) ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, v := range values {
		if err := put(root, v.Path, v.Value, v.Origin); err != nil {
			return nil, fmt.Errorf("%s: %w", v.Path, err)
		}
	}
	var out bytes.Buffer
	for line := range strings.SplitSeq(strings.TrimSpace(head), "\n") {
		out.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	if len(values) == 0 {
		out.WriteString("{}\n")
		return out.Bytes(), nil
	}
	text, err := encode(root)
	out.Write(text)
	return out.Bytes(), err
}

// encode writes a document with the indentation of the chart's own files.
func encode(doc *yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(doc); err != nil {
		return nil, err
	}
	err := enc.Close()
	return out.Bytes(), err
}

// put sets the value at the path of a mapping, making the groups on the way.
func put(n *yaml.Node, path chart.Path, value any, why string) error {
	for i, name := range path {
		if n.Kind != yaml.MappingNode {
			return fmt.Errorf("%s is no group", path[:i])
		}
		at := index(n, name)
		if at < 0 {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &yaml.Node{Kind: yaml.MappingNode})
			at = len(n.Content) - 2
		}
		if i < len(path)-1 {
			n = n.Content[at+1]
			continue
		}
		leaf, isNode := value.(*yaml.Node)
		if !isNode {
			leaf = &yaml.Node{}
			if err := leaf.Encode(value); err != nil {
				return err
			}
		}
		if text, isText := value.(string); isText && strings.Contains(text, "\n") {
			leaf.Style = yaml.LiteralStyle
		}
		if why != "" {
			n.Content[at].HeadComment = fold(why)
		}
		n.Content[at+1] = leaf
	}
	return nil
}

// fold breaks a comment into lines that are easy to read.
func fold(text string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > 96 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, line), "\n")
}

// index returns where the key stands in a mapping, or -1.
func index(n *yaml.Node, name string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return i
		}
	}
	return -1
}
