// Package fix changes settings in the text of a YAML file. All other lines keep their comments, order and style. No
// input makes the package panic.
package fix

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// ErrEdit is returned for a text that cannot be edited. The message says why.
var ErrEdit = errors.New("values file cannot be rewritten")

// Edit changes the setting at a path.
type Edit struct {
	Path   chart.Path
	Drop   bool       // remove the setting, and parent groups that become empty
	Rename chart.Path // the new path of the setting
	Value  *string    // the new value, which can be combined with Rename
}

// Changes reports whether the edit changes anything.
func (e *Edit) Changes() bool { return e.Drop || e.Rename != nil || e.Value != nil }

// Apply applies edits to a document and returns the new text. Paths are relative to the group at path base, or to the
// document root if it is nil. Edits of missing settings are skipped. Errors wrap ErrEdit.
func Apply(data []byte, base chart.Path, edits []Edit) ([]byte, error) {
	for _, e := range edits {
		d, err := read(data)
		if err != nil {
			return nil, err
		}
		chain := d.find(slices.Concat(base, e.Path))
		if len(chain) < len(base)+len(e.Path) {
			continue
		}
		last := chain[len(chain)-1]
		switch to := len(e.Rename) - 1; {
		case e.Drop:
			d.remove(chain)
		case e.Value != nil:
			d.replace(chain, word(*e.Value))
		case e.Rename == nil:
		case to != len(e.Path)-1 || !slices.Equal(e.Path[:to], e.Rename[:to]) || index(last.parent, e.Rename[to]) >= 0:
			d.remove(chain)
			if d, err = read([]byte(strings.Join(d.lines, ""))); err != nil {
				return nil, err
			}
			d.set(slices.Concat(base, e.Rename), last.key, last.value)
		case last.inBrackets():
			last.key.Value = e.Rename[to]
			d.rewrite(chain)
		default:
			line := &d.lines[last.key.Line-1]
			*line = strings.Replace(*line, last.key.Value, e.Rename[to], 1)
		}
		data = []byte(strings.Join(d.lines, ""))
		if e.Value != nil && e.Rename != nil && !e.Drop {
			if data, err = Apply(data, base, []Edit{{Path: e.Path, Rename: e.Rename}}); err != nil {
				return nil, err
			}
		}
	}
	_, err := read(data)
	return data, err
}

// document is a text with its parsed tree. The tree is outdated once the text changes.
type document struct {
	root  *yaml.Node
	lines []string // with their line breaks
}

var (
	otherBreaks = regexp.MustCompile("\r[^\n]|\u0085|\u2028|\u2029") // line breaks that only YAML recognizes
	notBlank    = regexp.MustCompile(`(?m)^.*\S`)
)

func read(data []byte) (*document, error) {
	var doc yaml.Node
	reason := ""
	switch err := yaml.Unmarshal(data, &doc); {
	case err != nil:
		reason = "it is not valid YAML, or an alias refers to an anchor that the edit removes; " +
			"replace such aliases with values"
	case len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode:
		reason = "it has no keys"
	case otherBreaks.Match(data):
		reason = "it has line breaks that only YAML recognizes; replace them with line feeds"
	default:
		return &document{doc.Content[0], strings.SplitAfter(string(data), "\n")}, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrEdit, reason)
}

// entry is a key of a mapping with its value.
type entry struct{ parent, key, value *yaml.Node }

// inBrackets reports whether the entry is in a flow mapping.
func (e entry) inBrackets() bool { return e.parent.Style&yaml.FlowStyle != 0 }

// find returns the entries along a path, as far as they exist. Aliases are not followed.
func (d *document) find(path chart.Path) (chain []entry) {
	n := d.root
	for _, name := range path {
		at := index(n, name)
		if at < 0 {
			break
		}
		chain = append(chain, entry{n, n.Content[at], n.Content[at+1]})
		n = n.Content[at+1]
	}
	return chain
}

// index returns the index of a key in a mapping, or -1.
func index(n *yaml.Node, name string) int {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return i
		}
	}
	return -1
}

// extent returns the range of lines of an entry in a block mapping, without comments and blank lines after it.
func (d *document) extent(e entry) (start, end int) {
	end = e.key.Line
	for i, line := range d.lines[end:] {
		text := strings.TrimSpace(line)
		indent := len(line) - len(strings.TrimLeft(line, " "))
		isItem := e.value.Kind == yaml.SequenceNode && indent == e.key.Column-1 && strings.HasPrefix(text, "-")
		if inside := indent >= e.key.Column || isItem; inside && text != "" {
			end = e.key.Line + i + 1
		} else if text != "" && text[0] != '#' {
			break
		}
	}
	return e.key.Line - 1, end
}

// splice replaces the lines from start to end with a text.
func (d *document) splice(start, end int, text string) {
	if text != "" && start > 0 && !strings.HasSuffix(d.lines[start-1], "\n") {
		text = "\n" + text
	}
	d.lines = slices.Replace(d.lines, start, end, text)
}

// rewrite formats the innermost block entry of the chain again, or the whole document if there is none.
func (d *document) rewrite(chain []entry) {
	if at := slices.IndexFunc(chain, entry.inBrackets); at >= 0 {
		chain = chain[:at]
	}
	if len(chain) == 0 {
		d.lines = []string{encoded(d.root)}
		return
	}
	e := chain[len(chain)-1]
	start, end := d.extent(e)
	d.splice(start, end, block(e.key, e.value, e.key.Column-1))
}

// replace replaces the value of the last entry of the chain.
func (d *document) replace(chain []entry, value *yaml.Node) {
	last := chain[len(chain)-1].value
	comment := last.LineComment
	*last = *value
	last.LineComment = comment
	d.rewrite(chain)
}

// remove removes the last entry of the chain, and parent groups that contain nothing else. Comment lines stay.
func (d *document) remove(chain []entry) {
	for len(chain) > 1 && len(chain[len(chain)-1].parent.Content) == 2 {
		chain = chain[:len(chain)-1]
	}
	last := chain[len(chain)-1]
	if last.inBrackets() {
		at := index(last.parent, last.key.Value)
		last.parent.Content = slices.Delete(last.parent.Content, at, at+2)
		d.rewrite(chain)
		return
	}
	start, end := d.extent(last)
	left := ""
	for _, line := range d.lines[start:end] {
		if text := strings.TrimSpace(line); strings.HasPrefix(text, "#") && last.value.Kind != yaml.ScalarNode {
			left += strings.Repeat(" ", last.key.Column-1) + text + "\n"
		}
	}
	if len(d.root.Content) == 2 && len(chain) == 1 {
		left += "{}\n"
	}
	afterBlank := start == 0 || strings.TrimSpace(d.lines[start-1]) == ""
	for left == "" && afterBlank && end < len(d.lines) && d.lines[end] == "\n" {
		end++
	}
	d.splice(start, end, left)
}

// set sets the value at a path. A missing path is appended to the innermost existing group.
func (d *document) set(path chart.Path, key, value *yaml.Node) {
	chain := d.find(path)
	if len(chain) == len(path) {
		d.replace(chain, value)
		return
	}
	comment := key.LineComment
	key = word(path[len(path)-1])
	key.LineComment = comment
	for i := len(path) - 2; i >= len(chain); i-- {
		value = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key, value}}
		key = word(path[i])
	}
	group := d.root
	if len(chain) > 0 {
		group = chain[len(chain)-1].value
	}
	isBlock := group.Style&yaml.FlowStyle == 0 && !slices.ContainsFunc(chain, entry.inBrackets)
	if n := len(group.Content); group.Kind == yaml.MappingNode && isBlock && n > 0 {
		last := entry{group, group.Content[n-2], group.Content[n-1]}
		_, end := d.extent(last)
		d.splice(end, end, block(key, value, last.key.Column-1))
		return
	}
	if group.Kind != yaml.MappingNode {
		*group = yaml.Node{Kind: yaml.MappingNode}
	}
	if group == d.root {
		group.Style = 0
	}
	group.Content = append(group.Content, key, value)
	d.rewrite(chain)
}

// word returns a scalar node. true and false are booleans; everything else is a string.
func word(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(text)
	if text == "true" || text == "false" {
		n.Tag = "!!bool"
	}
	return n
}

// block formats an entry as block YAML. Comments before and after the entry are omitted: they are still in the text.
func block(key, value *yaml.Node, indent int) string {
	bare := *key
	bare.HeadComment, bare.FootComment = "", ""
	text := encoded(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{&bare, value}})
	return notBlank.ReplaceAllString(text, strings.Repeat(" ", indent)+"$0")
}

func encoded(n *yaml.Node) string {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	_ = encoder.Encode(n) // cannot fail: the node was parsed or encoded before
	return out.String()
}
