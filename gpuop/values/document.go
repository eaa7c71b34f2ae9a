package values

import (
	"bytes"
	"fmt"
	"slices"
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

// take removes the entry at the path, and the groups that are empty without it. The comments of
// what goes stay in the file, above what follows.
func take(n *yaml.Node, path chart.Path) (key, value *yaml.Node) {
	if n.Kind != yaml.MappingNode || len(path) == 0 {
		return nil, nil
	}
	at := index(n, path[0])
	if at < 0 {
		return nil, nil
	}
	if len(path) == 1 {
		key, value = n.Content[at], n.Content[at+1]
		n.Content = slices.Delete(n.Content, at, at+2)
		return key, value
	}
	inner := n.Content[at+1]
	key, value = take(inner, path[1:])
	if value != nil && inner.Kind == yaml.MappingNode && len(inner.Content) == 0 {
		key = withComments(key, n.Content[at], inner)
		n.Content = slices.Delete(n.Content, at, at+2)
	}
	return key, value
}

// withComments is the key with the comments of the group around it too.
func withComments(key *yaml.Node, around ...*yaml.Node) *yaml.Node {
	out := *key
	for _, n := range around {
		out.HeadComment = joinComments(n.HeadComment, n.LineComment, out.HeadComment)
		out.FootComment = joinComments(out.FootComment, n.FootComment)
	}
	return &out
}

func joinComments(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n")
}

// comments are all comments of an entry, in the order of the file.
func comments(key, value *yaml.Node) string {
	all := []string{key.HeadComment, key.LineComment}
	var below func(*yaml.Node)
	below = func(n *yaml.Node) {
		all = append(all, n.HeadComment, n.LineComment)
		for _, c := range n.Content {
			below(c)
		}
		all = append(all, n.FootComment)
	}
	below(value)
	return joinComments(append(all, key.FootComment)...)
}

// keep puts comments where the entry at the path was: above what follows it, or else at the end of
// the group.
func keep(root *yaml.Node, path chart.Path, text string, at int) {
	n := root
	for _, name := range path[:len(path)-1] {
		i := index(n, name)
		if i < 0 {
			break
		}
		n = n.Content[i+1]
	}
	switch {
	case text == "":
	case n.Kind == yaml.MappingNode && at >= 0 && at < len(n.Content):
		n.Content[at].HeadComment = joinComments(text, n.Content[at].HeadComment)
	case n.Kind == yaml.MappingNode && len(n.Content) > 0:
		last := n.Content[len(n.Content)-2]
		last.FootComment = joinComments(last.FootComment, text)
	default:
		root.FootComment = joinComments(root.FootComment, text)
	}
}

// position is where the entry at the path stands in its group, or -1.
func position(n *yaml.Node, path chart.Path) int {
	for i, name := range path {
		if n.Kind != yaml.MappingNode {
			return -1
		}
		at := index(n, name)
		if at < 0 || i == len(path)-1 {
			return at
		}
		n = n.Content[at+1]
	}
	return -1
}
