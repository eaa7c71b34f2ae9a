package release

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"text/template/parse"

	helm "helm.sh/helm/v3/pkg/chart"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// readTemplates records which values the templates read. below is the path of the chart's values: the root, or a
// subchart's name.
func readTemplates(files []*helm.File, below chart.Path, into *chart.Release) error {
	for _, f := range files {
		p, text := f.Name, string(f.Data)
		if !slices.Contains([]string{".yaml", ".yml", ".tpl", ".txt"}, path.Ext(p)) {
			continue
		}
		tree := parse.New(p)
		tree.Mode = parse.SkipFuncCheck
		set := map[string]*parse.Tree{}
		if _, err := tree.Parse(text, "", "", set); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		for _, defined := range set {
			r := &templateReader{below: below, into: into}
			r.node(defined.Root, &scope{dot: []string{}, variables: map[string][]string{}})
		}
	}
	return nil
}

// templateReader records which values a template reads, and how.
type templateReader struct {
	below chart.Path
	into  *chart.Release
}

// scope holds the paths that the dot and the variables of a template refer to. nil means unknown.
type scope struct {
	dot       []string
	variables map[string][]string
}

func (s *scope) inner(dot []string) *scope {
	return &scope{dot, maps.Clone(s.variables)}
}

// note records how a template uses the value at a path from the root. Only values of the chart are recorded.
func (t *templateReader) note(chain []string, use chart.Use) {
	if len(chain) < 2 || chain[0] != "Values" {
		return
	}
	path := append(slices.Clone(t.below), chain[1:]...)
	name := path.String()
	t.into.Reads[name] = max(t.into.Reads[name], use)
}

func (t *templateReader) node(n parse.Node, s *scope) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return // there is no else branch
		}
		for _, inner := range n.Nodes {
			t.node(inner, s)
		}
	case *parse.ActionNode:
		t.pipe(n.Pipe, s, chart.Printed)
	case *parse.IfNode:
		t.pipe(n.Pipe, s, chart.Tested)
		t.node(n.List, s)
		t.node(n.ElseList, s)
	case *parse.WithNode:
		t.pipe(n.Pipe, s, chart.Tested)
		t.node(n.List, s.inner(s.chain(n.Pipe)))
		t.node(n.ElseList, s)
	case *parse.RangeNode:
		t.pipe(n.Pipe, s, chart.Copied)
		t.node(n.List, s.inner(nil))
		t.node(n.ElseList, s)
	case *parse.TemplateNode:
		t.pipe(n.Pipe, s, chart.Tested)
	}
}

// copying lists functions that use a value with everything below it. comparing lists functions that depend on the text
// of a value.
var (
	copying = []string{"toYaml", "toJson", "toPrettyJson", "toRawJson", "range", "tpl", "merge", "mergeOverwrite",
		"concat", "keys", "values", "pick", "omit", "deepCopy"}
	comparing = []string{"eq", "ne", "lt", "le", "gt", "ge", "contains", "hasPrefix", "hasSuffix", "has", "kindIs",
		"typeIs"}
)

func (t *templateReader) pipe(p *parse.PipeNode, s *scope, use chart.Use) {
	if p == nil {
		return
	}
	for _, c := range p.Cmds {
		if name := function(c); slices.Contains(copying, name) {
			use = chart.Copied
		} else if slices.Contains(comparing, name) {
			use = max(use, chart.Printed)
		}
	}
	for _, c := range p.Cmds {
		t.command(c, s, use)
	}
	if len(p.Decl) > 0 {
		s.variables[p.Decl[len(p.Decl)-1].Ident[0]] = s.chain(p)
	}
}

// function returns the name of the function that a command calls, or "".
func function(c *parse.CommandNode) string {
	if id, ok := c.Args[0].(*parse.IdentifierNode); ok {
		return id.Ident
	}
	return ""
}

func (t *templateReader) command(c *parse.CommandNode, s *scope, use chart.Use) {
	if name := function(c); name == "hasKey" && len(c.Args) == 3 {
		if key, isText := c.Args[2].(*parse.StringNode); isText {
			if chain := s.chain(c.Args[1]); chain != nil {
				t.note(append(slices.Clone(chain), key.Text), chart.Tested)
			}
		}
		return
	}
	for _, a := range c.Args {
		if p, isPipe := a.(*parse.PipeNode); isPipe {
			t.pipe(p, s, use)
			continue
		}
		if chain := s.chain(a); chain != nil {
			t.note(chain, use)
		}
	}
}

// chain returns the path from the root that a node refers to, or nil if the path is unknown.
func (s *scope) chain(n parse.Node) []string {
	join := func(head, tail []string) []string {
		if head == nil {
			return nil
		}
		return append(slices.Clone(head), tail...)
	}
	switch n := n.(type) {
	case *parse.DotNode:
		return s.dot
	case *parse.FieldNode:
		return join(s.dot, n.Ident)
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			return n.Ident[1:]
		}
		return join(s.variables[n.Ident[0]], n.Ident[1:])
	case *parse.ChainNode:
		return join(s.chain(n.Node), n.Field)
	case *parse.PipeNode:
		if len(n.Cmds) == 1 && len(n.Cmds[0].Args) == 1 {
			return s.chain(n.Cmds[0].Args[0])
		}
	}
	return nil
}
