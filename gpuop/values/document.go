package values

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// write renders values as YAML in the given order. The reason of each value becomes a comment above it, and head
// becomes the comment at the top.
func write(head string, values []chart.Setting) ([]byte, error) {
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
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, err
	}
	err := enc.Close()
	return out.Bytes(), err
}

// put sets the value at a path of a mapping. It creates missing groups. why becomes the comment above the value's key.
func put(n *yaml.Node, path chart.Path, value any, why string) error {
	at := 0
	for at < len(n.Content) && n.Content[at].Value != path[0] {
		at += 2
	}
	if at == len(n.Content) {
		n.Content = append(n.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Value: path[0]},
			&yaml.Node{Kind: yaml.MappingNode})
	}
	key, leaf := n.Content[at], n.Content[at+1]
	if len(path) > 1 {
		return put(leaf, path[1:], value, why)
	}
	if why != "" {
		key.HeadComment = strings.Join(check.Fold(why, 96), "\n")
	}
	return leaf.Encode(value)
}
