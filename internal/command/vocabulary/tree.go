package vocabulary

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A node is a value of a JSON or YAML document, with the line it stands on.
type node struct {
	line int
	text string // a string, or another scalar as it is written
	str  bool   // it is a string
	// literal: a line of the text is a line of the file, from line on.
	literal bool
	// start and end are where a string of JSON stands in its document, quotes included; column and
	// style where a scalar of YAML begins in its line, in characters from 1, and how it is written.
	start, end int
	column     int
	style      yaml.Style
	keys       []member
	list       []*node
}

// A member is a key of an object and its value.
type member struct {
	key   string
	line  int
	value *node
}

// get returns the value of a key, nil where there is none.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for i := range n.keys {
		if n.keys[i].key == key {
			return n.keys[i].value
		}
	}
	return nil
}

// string returns the text of a key's value if that is a string.
func (n *node) string(key string) string {
	if v := n.get(key); v != nil && v.str {
		return v.text
	}
	return ""
}

// maxDepth bounds how deep documents nest. Dashboards stay below 30.
const maxDepth = 200

// parseTree returns the documents of a file: one of JSON, any number of YAML.
func parseTree(data []byte) ([]*node, error) {
	content := bytes.TrimLeft(bytes.TrimPrefix(data, []byte("\ufeff")), " \t\r\n")
	if bytes.HasPrefix(content, []byte("{")) || bytes.HasPrefix(content, []byte("[")) {
		n, err := parseJSON(data)
		if err != nil {
			return nil, err
		}
		return []*node{n}, nil
	}
	return parseYAML(data)
}

// A jsonReader reads one JSON document token by token.
type jsonReader struct {
	data []byte
	dec  *json.Decoder
}

func parseJSON(data []byte) (*node, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	r := &jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	r.dec.UseNumber()
	n, err := r.value(0)
	if err == nil {
		if _, extra := r.dec.Token(); !errors.Is(extra, io.EOF) {
			return nil, &text.SyntaxError{Line: r.line(r.dec.InputOffset()), Msg: "expected the end of the JSON document, found more behind it"}
		}
		return n, nil
	}
	var own *text.SyntaxError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &own):
		return nil, own
	case errors.As(err, &syntax):
		return nil, &text.SyntaxError{Line: r.line(syntax.Offset), Msg: "not JSON: " + syntax.Error()}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &text.SyntaxError{Line: r.line(int64(len(data))), Msg: "not JSON: the document ends too early"}
	default:
		return nil, &text.SyntaxError{Line: r.line(r.dec.InputOffset()), Msg: "not JSON: " + err.Error()}
	}
}

// line returns the line of the last byte before an offset.
func (r *jsonReader) line(offset int64) int {
	return 1 + bytes.Count(r.data[:min(max(offset, 0), int64(len(r.data)))], []byte("\n"))
}

func (r *jsonReader) value(depth int) (*node, error) {
	start := r.dec.InputOffset()
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	n := &node{line: r.line(r.dec.InputOffset())}
	if depth > maxDepth {
		return nil, &text.SyntaxError{Line: n.line, Msg: fmt.Sprintf("nested deeper than %d", maxDepth)}
	}
	switch v := token.(type) {
	case json.Delim:
		for r.dec.More() {
			var m member
			if v == '{' {
				key, err := r.dec.Token()
				if err != nil {
					return nil, err
				}
				m.key, _ = key.(string)
				m.line = r.line(r.dec.InputOffset())
			}
			if m.value, err = r.value(depth + 1); err != nil {
				return nil, err
			}
			if v == '{' {
				n.keys = append(n.keys, m)
			} else {
				n.list = append(n.list, m.value)
			}
		}
		_, err = r.dec.Token() // the closing one
		return n, err
	case string:
		n.text, n.str = v, true
		n.start, n.end = int(start)+bytes.IndexByte(r.data[start:], '"'), int(r.dec.InputOffset())
	case json.Number:
		n.text = v.String()
	case bool:
		n.text = strconv.FormatBool(v)
	}
	return n, nil
}

func parseYAML(data []byte) ([]*node, error) {
	parsed, err := text.Documents("", data)
	if err != nil {
		return nil, err
	}
	var docs []*node
	for _, doc := range parsed {
		n, err := fromYAML(doc, 0)
		if err != nil {
			return nil, err
		}
		docs = append(docs, n)
	}
	return docs, nil
}

func fromYAML(y *yaml.Node, depth int) (*node, error) {
	n := &node{line: y.Line}
	if depth > maxDepth {
		return nil, &text.SyntaxError{Line: y.Line, Msg: fmt.Sprintf("nested deeper than %d", maxDepth)}
	}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) == 0 {
			return n, nil
		}
		return fromYAML(y.Content[0], depth+1)
	case yaml.AliasNode:
		// What an alias stands for is reported once, where it is defined.
		return n, nil
	case yaml.MappingNode:
		for i := 0; i+1 < len(y.Content); i += 2 {
			v, err := fromYAML(y.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			n.keys = append(n.keys, member{y.Content[i].Value, y.Content[i].Line, v})
		}
	case yaml.SequenceNode:
		for _, c := range y.Content {
			v, err := fromYAML(c, depth+1)
			if err != nil {
				return nil, err
			}
			n.list = append(n.list, v)
		}
	default:
		n.text, n.str = y.Value, y.Tag == "!!str"
		n.column, n.style = y.Column, y.Style
		if n.str && y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			n.line++ // the text begins below its header
			n.literal = y.Style&yaml.LiteralStyle != 0
		}
	}
	return n, nil
}
