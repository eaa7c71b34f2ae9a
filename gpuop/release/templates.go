package release

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template/parse"

	helm "helm.sh/helm/v3/pkg/chart"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// readTemplates records which values the templates read. below is the path of the chart's values: the root, or a
// subchart's name.
func readTemplates(files []*helm.File, below chart.Path, reads map[string]chart.Use) error {
	for _, f := range files {
		if !slices.Contains([]string{".yaml", ".yml", ".tpl", ".txt"}, path.Ext(f.Name)) {
			continue
		}
		tree := parse.New(f.Name)
		tree.Mode = parse.SkipFuncCheck
		set := map[string]*parse.Tree{}
		if _, err := tree.Parse(string(f.Data), "", "", set); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		for _, defined := range set {
			s := &scope{below, reads, []string{}, map[string][]string{}}
			s.node(defined.Root)
		}
	}
	return nil
}

// scope records which values a template reads, and how.
type scope struct {
	below chart.Path
	reads map[string]chart.Use
	// dot and variables are the paths that the dot and the variables refer to. nil means unknown.
	dot       []string
	variables map[string][]string
}

func (s *scope) inner(dot []string) *scope {
	return &scope{s.below, s.reads, dot, maps.Clone(s.variables)}
}

// note records how a template uses the value at a path from the root. Only values of the chart are recorded.
func (s *scope) note(chain []string, use chart.Use) {
	if len(chain) >= 2 && chain[0] == "Values" {
		name := slices.Concat(s.below, chain[1:]).String()
		s.reads[name] = max(s.reads[name], use)
	}
}

func (s *scope) node(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil { // a missing else branch is nil
			for _, inner := range n.Nodes {
				s.node(inner)
			}
		}
	case *parse.ActionNode:
		s.pipe(n.Pipe, chart.Printed)
	case *parse.IfNode:
		s.pipe(n.Pipe, chart.Tested)
		s.node(n.List)
		s.node(n.ElseList)
	case *parse.WithNode:
		s.pipe(n.Pipe, chart.Tested)
		s.inner(s.chain(n.Pipe)).node(n.List)
		s.node(n.ElseList)
	case *parse.RangeNode:
		s.pipe(n.Pipe, chart.Copied)
		s.inner(nil).node(n.List)
		s.node(n.ElseList)
	case *parse.TemplateNode:
		s.pipe(n.Pipe, chart.Tested)
	}
}

// copying lists functions that use a value with everything below it. comparing lists functions that depend on the text
// of a value.
var (
	copying = strings.Fields("toYaml toJson toPrettyJson toRawJson range tpl merge mergeOverwrite concat keys values " +
		"pick omit deepCopy")
	comparing = strings.Fields("eq ne lt le gt ge contains hasPrefix hasSuffix has kindIs typeIs")
)

func (s *scope) pipe(p *parse.PipeNode, use chart.Use) {
	if p == nil {
		return
	}
	for _, c := range p.Cmds {
		if name := c.Args[0].String(); slices.Contains(copying, name) {
			use = chart.Copied
		} else if slices.Contains(comparing, name) {
			use = max(use, chart.Printed)
		}
	}
	for _, c := range p.Cmds {
		if c.Args[0].String() == "hasKey" && len(c.Args) == 3 {
			if key, isText := c.Args[2].(*parse.StringNode); isText {
				s.note(append(slices.Clone(s.chain(c.Args[1])), key.Text), chart.Tested)
			}
			continue
		}
		for _, a := range c.Args {
			if inner, isPipe := a.(*parse.PipeNode); isPipe {
				s.pipe(inner, use)
			} else {
				s.note(s.chain(a), use)
			}
		}
	}
	if len(p.Decl) > 0 {
		s.variables[p.Decl[len(p.Decl)-1].Ident[0]] = s.chain(p)
	}
}

// chain returns the path from the root that a node refers to, or nil if the path is unknown.
func (s *scope) chain(n parse.Node) []string {
	var head, tail []string
	switch n := n.(type) {
	case *parse.DotNode:
		return s.dot
	case *parse.FieldNode:
		head, tail = s.dot, n.Ident
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			return n.Ident[1:]
		}
		head, tail = s.variables[n.Ident[0]], n.Ident[1:]
	case *parse.ChainNode:
		head, tail = s.chain(n.Node), n.Field
	case *parse.PipeNode:
		if len(n.Cmds) == 1 && len(n.Cmds[0].Args) == 1 {
			return s.chain(n.Cmds[0].Args[0])
		}
	}
	if head == nil {
		return nil
	}
	return append(slices.Clone(head), tail...)
}
