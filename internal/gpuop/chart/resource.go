package chart

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

//go:embed resources.txt
var resourcesText string

// A Field is one field of a custom resource.
type Field struct {
	Name string
	// Type is bool, int, string, any, list, map, group or enum.
	Type string
	// Enum are the values of an enum.
	Enum     []string
	Required bool
}

// Fields returns the fields of a group of a custom resource of the operator, such as "driver.rdma" of ClusterPolicy;
// "" is the spec itself. ok is false for a resource or group that does not exist.
func Fields(resource, group string) (list []Field, ok bool) {
	if group == "" {
		group = "."
	}
	list, ok = resources()[resource+" "+group]
	return list, ok
}

var resources = sync.OnceValue(func() map[string][]Field {
	m, err := parseResources(resourcesText)
	if err != nil {
		return nil
	}
	return m
})

func parseResources(text string) (map[string][]Field, error) {
	out := map[string][]Field{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 3 {
			return nil, fmt.Errorf("resources.txt:%d: %d columns, want 3", n, len(columns))
		}
		var list []Field
		for _, word := range strings.Fields(columns[2]) {
			name, kind, found := strings.Cut(word, ":")
			if !found {
				return nil, fmt.Errorf("resources.txt:%d: field %q, want name:type", n, word)
			}
			f := Field{Name: strings.TrimSuffix(name, "!"), Type: kind, Required: strings.HasSuffix(name, "!")}
			if strings.Contains(kind, "|") {
				f.Type = "enum"
				for v := range strings.SplitSeq(kind, "|") {
					f.Enum = append(f.Enum, strings.Trim(v, `"`))
				}
			}
			list = append(list, f)
		}
		out[columns[0]+" "+columns[1]] = list
	}
	return out, nil
}
