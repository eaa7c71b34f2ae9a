package values

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// withBlankLines puts the blank lines of before, from which doc was read, into after, which was
// written of doc: the encoder knows comments, and no blank lines. They stand above the same keys
// and list entries, or above their comments. after is returned as it is where a blank line would
// change a value.
func withBlankLines(before, after []byte, doc *yaml.Node) []byte {
	var written yaml.Node
	if err := yaml.Unmarshal(after, &written); err != nil {
		return after
	}
	was, is := strings.Split(string(before), "\n"), strings.Split(string(after), "\n")
	var above []int
	var walk func(old, now *yaml.Node)
	walk = func(old, now *yaml.Node) {
		if len(old.Content) != len(now.Content) || old.Style&yaml.FlowStyle != 0 {
			return
		}
		for i, n := range old.Content {
			// A node that was not read from the file has no line.
			entry := old.Kind == yaml.SequenceNode || old.Kind == yaml.MappingNode && i%2 == 0
			if _, blank := top(was, n.Line-1, false); entry && n.Line > 0 && blank {
				if first, already := top(is, now.Content[i].Line-1, true); first > 0 && !already {
					above = append(above, first)
				}
			}
			walk(n, now.Content[i])
		}
	}
	walk(doc, &written)
	slices.Sort(above)
	above = slices.Compact(above)
	for _, at := range slices.Backward(above) {
		is = slices.Insert(is, at, "")
	}
	out := []byte(strings.Join(is, "\n"))
	var values, spaced any
	if yaml.Unmarshal(after, &values) != nil || yaml.Unmarshal(out, &spaced) != nil || !reflect.DeepEqual(values, spaced) {
		return after
	}
	return out
}

// top is the first of the lines of comment that end above the line at, and whether the line above
// it is blank. With aligned, only comments that are indented as the line itself count: the encoder
// writes those of an entry so, and what ends the entry before with that entry's own indentation.
func top(lines []string, at int, aligned bool) (first int, blank bool) {
	first = min(at, len(lines))
	for first > 0 {
		comment := strings.TrimLeft(lines[first-1], " ")
		if !strings.HasPrefix(comment, "#") || aligned && at < len(lines) && indent(lines[first-1]) != indent(lines[at]) {
			break
		}
		first--
	}
	return first, first > 0 && strings.TrimSpace(lines[first-1]) == ""
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
