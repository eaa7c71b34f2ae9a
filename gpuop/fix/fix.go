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

// ErrEdit is returned for a text that has a root other than a mapping, has unusual line breaks, or is not valid YAML.
// An edit leaves invalid YAML if it removes an anchor that aliases use.
var ErrEdit = errors.New("values file cannot be rewritten")

// Edit changes the setting at a path.
type Edit struct {
	Path chart.Path
	// Drop removes the setting, and parent groups that become empty.
	Drop bool
	// Rename is the new path of the setting.
	Rename chart.Path
	// Value is the new value. It can be combined with Rename.
	Value *string
}

// Changes reports whether the edit changes anything.
func (e *Edit) Changes() bool {
	return e.Drop || e.Rename != nil || e.Value != nil
}

// Apply applies edits to a document and returns the new text. The paths of the edits are relative to the group at path
// base; a nil base is the document root. Edits of missing settings are skipped. Errors wrap ErrEdit.
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
			if e.Rename != nil {
				d.data, err = Apply(d.data, base, []Edit{{Path: e.Path, Rename: e.Rename}})
			}
		case e.Rename == nil:
		case to == len(e.Path)-1 && slices.Equal(e.Path[:to], e.Rename[:to]) && index(last.parent, e.Rename[to]) < 0:
			d.rename(chain, e.Rename[to])
		default:
			d.remove(chain)
			err = d.set(slices.Concat(base, e.Rename), last.key, last.value)
		}
		if err != nil {
			return nil, err
		}
		data = d.data
	}
	_, err := read(data)
	return data, err
}

// document is a text with its parsed tree. The tree is outdated once the text changes.
type document struct {
	data  []byte
	root  *yaml.Node
	lines []int // offsets of the line starts and of the end
}

// otherBreaks matches line breaks that only YAML recognizes.
var otherBreaks = regexp.MustCompile("\r[^\n]|\u0085|\u2028|\u2029")

func read(data []byte) (*document, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		const reason = "it is not valid YAML, or an alias refers to an anchor that the edit removes; " +
			"replace such aliases with values"
		return nil, fmt.Errorf("%w: %s", ErrEdit, reason)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%w: it has no keys", ErrEdit)
	}
	if otherBreaks.Match(data) {
		const reason = "it has line breaks that only YAML recognizes; replace them with line feeds"
		return nil, fmt.Errorf("%w: %s", ErrEdit, reason)
	}
	d := &document{data: data, root: doc.Content[0]}
	for at := 0; at < len(data); {
		d.lines = append(d.lines, at)
		next := bytes.IndexByte(data[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	d.lines = append(d.lines, len(data))
	return d, nil
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

// extent returns the start and end offset of an entry in a block mapping. Comments and blank lines after the entry are
// excluded.
func (d *document) extent(e entry) (start, end int) {
	last := e.key.Line
	for i := e.key.Line; i < len(d.lines)-1; i++ {
		line := d.data[d.lines[i]:d.lines[i+1]]
		text := bytes.TrimSpace(line)
		indent := len(line) - len(bytes.TrimLeft(line, " "))
		isItem := e.value.Kind == yaml.SequenceNode && indent == e.key.Column-1 && bytes.HasPrefix(text, []byte("-"))
		inside := indent >= e.key.Column || isItem
		if len(text) > 0 && !inside && text[0] != '#' {
			break
		}
		if len(text) > 0 && inside {
			last = i + 1
		}
	}
	return d.lines[e.key.Line-1], d.lines[min(last, len(d.lines)-1)]
}

func (d *document) splice(start, end int, text string) {
	before := d.data[:start:start]
	if text != "" && start > 0 && before[start-1] != '\n' {
		before = append(before, '\n')
	}
	d.data = slices.Concat(before, []byte(text), d.data[end:])
}

// rewrite formats the innermost block entry of the chain again, after its tree was changed. If the root is a flow
// mapping, it formats the whole document.
func (d *document) rewrite(chain []entry) {
	at := slices.IndexFunc(chain, entry.inBrackets)
	switch {
	case at == 0:
		d.data = []byte(encoded(d.root))
		return
	case at > 0:
		chain = chain[:at]
	}
	e := chain[len(chain)-1]
	start, end := d.extent(e)
	d.splice(start, end, block(e.key, e.value, e.key.Column-1))
}

func (d *document) replace(chain []entry, value *yaml.Node) {
	last := chain[len(chain)-1].value
	comment := last.LineComment
	*last = *value
	last.LineComment = comment
	d.rewrite(chain)
}

// rename renames the last entry of the chain.
func (d *document) rename(chain []entry, name string) {
	last := chain[len(chain)-1]
	if last.inBrackets() {
		last.key.Value = name
		d.rewrite(chain)
		return
	}
	start, end := d.extent(last)
	d.splice(start, end, strings.Replace(string(d.data[start:end]), last.key.Value, name, 1))
}

// remove removes the last entry of the chain, with all parent groups that contain nothing else. Comment lines in a
// removed block group are kept.
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
	for line := range bytes.Lines(d.data[start:end]) {
		if text := bytes.TrimSpace(line); bytes.HasPrefix(text, []byte("#")) && last.value.Kind != yaml.ScalarNode {
			left += strings.Repeat(" ", last.key.Column-1) + string(text) + "\n"
		}
	}
	if len(d.root.Content) == 2 && len(chain) == 1 {
		left += "{}\n"
	}
	for left == "" && blankEnd.Match(d.data[:start]) && bytes.HasPrefix(d.data[end:], []byte("\n")) {
		end++
	}
	d.splice(start, end, left)
}

// blankEnd matches a text that is empty or ends in a blank line.
var blankEnd = regexp.MustCompile(`(^|\n)[ \t]*\n$|^$`)

// set sets the value at a path of the current text. If the path is missing, set appends to the innermost existing
// group.
func (d *document) set(path chart.Path, key, value *yaml.Node) error {
	now, err := read(d.data)
	if err != nil {
		return err
	}
	*d = *now
	chain := d.find(path)
	if len(chain) == len(path) {
		d.replace(chain, value)
		return nil
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
	if group.Kind == yaml.MappingNode && isBlock && len(group.Content) > 0 {
		last := group.Content[len(group.Content)-2:]
		_, end := d.extent(entry{group, last[0], last[1]})
		d.splice(end, end, block(key, value, last[0].Column-1))
		return nil
	}
	if group.Kind != yaml.MappingNode {
		*group = yaml.Node{Kind: yaml.MappingNode}
	}
	group.Content = append(group.Content, key, value)
	if len(chain) == 0 {
		group.Style = 0
		d.data = []byte(encoded(d.root))
		return nil
	}
	d.rewrite(chain)
	return nil
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
	var out strings.Builder
	for line := range strings.Lines(encoded(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{&bare, value}})) {
		if strings.TrimSpace(line) != "" {
			out.WriteString(strings.Repeat(" ", indent))
		}
		out.WriteString(line)
	}
	return out.String()
}

func encoded(n *yaml.Node) string {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if encoder.Encode(n) != nil {
		return "" // unreachable: the node was parsed or encoded before
	}
	return out.String()
}
