package lint

import (
	"fmt"
	"math/big"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

const sourceTerraform = "Terraform's language, and its provider helm: helm_release"

// unknownTag marks a value that another program fills in.
const unknownTag = "!unknown"

// terraformFile reads values, parameters and manifests as YAML nodes with the lines of the file.
type terraformFile struct {
	*run
	name   string
	source []byte
	// sizes are those of the locals, and evaluated is what was read of them.
	sizes     map[string]int
	evaluated int
	context   *hcl.EvalContext
}

// terraform judges what a Terraform file installs with the providers helm, kubernetes and kubectl.
func (r *run) terraform(name string, data []byte) {
	f := &terraformFile{run: r, name: name, source: data, sizes: map[string]int{}}
	if reason := tooComplex(string(data)); reason != "" {
		f.report(hcl.Range{}, "not-judged", report.Note, "", reason, "")
		return
	}
	file, problems := hclsyntax.ParseConfig(data, name, hcl.InitialPos)
	f.syntax(problems)
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return
	}
	f.evaluateLocals(body)
	found := false
	for _, b := range body.Blocks {
		if b.Type == "resource" && len(b.Labels) == 2 {
			found = f.resource(b) || found
		}
	}
	what := "Terraform"
	if found {
		what += " with values for gpu-operator"
	}
	r.kinds = append(r.kinds, what)
}

// syntax reports the first place that Terraform cannot read.
func (f *terraformFile) syntax(problems hcl.Diagnostics) {
	at := slices.IndexFunc(problems, func(p *hcl.Diagnostic) bool { return p.Severity == hcl.DiagError })
	if at < 0 {
		return
	}
	f.judged++ // that it is no Terraform
	place := hcl.Range{}
	if p := problems[at]; p.Subject != nil {
		place = *p.Subject
	}
	f.report(place, "terraform-syntax", report.Failed, "", "Terraform cannot read this: "+problems[at].Summary+"; "+problems[at].Detail, "")
}

// resource judges one resource, and reports whether it is a release of the operator's or the device plugin's chart.
func (f *terraformFile) resource(b *hclsyntax.Block) bool {
	switch kind := b.Labels[0]; kind {
	case "helm_release":
		return f.release(b)
	case "kubernetes_manifest":
		if a := b.Body.Attributes["manifest"]; a != nil {
			if n := f.node(a.Expr); n.Kind == yaml.MappingNode {
				f.addDocument(doc{file: f.name, root: n, route: sharing.Operator, reader: &fields.Reader{}})
			}
		}
	case "kubectl_manifest":
		if a := b.Body.Attributes["yaml_body"]; a != nil {
			if n := f.text(a.Expr); n.Tag != unknownTag {
				f.parseYAML(text{name: f.name, line: n.Line}, []byte(n.Value))
			}
		}
	}
	return false
}

func (f *terraformFile) report(at hcl.Range, id string, severity report.State, subject, reason, fix string) {
	f.findings = append(f.findings, report.Row{ID: id, State: severity, File: f.name, Line: at.Start.Line, Column: at.Start.Column,
		Subject: subject, Reason: reason, Fix: fix, Source: sourceTerraform})
}

// terraformFunctions are those that make nothing larger than their arguments are together, of the file alone.
var terraformFunctions = map[string]function.Function{
	"coalesce": stdlib.CoalesceFunc, "concat": stdlib.ConcatFunc, "lower": stdlib.LowerFunc, "merge": stdlib.MergeFunc,
	"trimspace": stdlib.TrimSpaceFunc, "upper": stdlib.UpperFunc,
}

// The bounds of what is evaluated: bytes and elements of the locals in one expression, and in all of a file.
const (
	maxLocal     = 16 << 10
	maxEvaluated = 256 << 10
)

// fromOutside are the names of what Terraform takes from elsewhere: variables, modules, data.
var fromOutside = []string{"var", "module", "data", "each", "count", "terraform", "self"}

// evaluateLocals makes the context in which expressions are evaluated: locals of the file have
// their values, and what comes from outside is unknown.
func (f *terraformFile) evaluateLocals(body *hclsyntax.Body) {
	here := cty.StringVal(".")
	variables := map[string]cty.Value{"path": cty.ObjectVal(map[string]cty.Value{"module": here, "root": here, "cwd": here})}
	for _, name := range fromOutside {
		variables[name] = cty.DynamicVal
	}
	f.context = &hcl.EvalContext{Variables: variables, Functions: terraformFunctions}
	locals := map[string]cty.Value{}
	// a local may stand below the one that it is used in
	for range 8 {
		for _, b := range body.Blocks {
			if b.Type != "locals" {
				continue
			}
			for _, name := range names(b.Body.Attributes) {
				if v, done := locals[name]; done && v.IsWhollyKnown() {
					continue
				}
				locals[name] = f.value(b.Body.Attributes[name].Expr)
				f.sizes[name] = sizeOf(locals[name], maxLocal)
			}
		}
		variables["local"] = cty.ObjectVal(locals)
	}
}

// sizeOf counts the bytes and elements of a value, as far as the limit.
func sizeOf(v cty.Value, limit int) int {
	size := 1
	switch {
	case !v.IsKnown() || v.IsNull():
	case v.Type() == cty.String:
		size += len(v.AsString())
	case v.CanIterateElements():
		for it := v.ElementIterator(); it.Next() && size <= limit; {
			_, element := it.Element()
			size += sizeOf(element, limit-size)
		}
	}
	return size
}

// value evaluates an expression; what is not known here is unknown, and so is a loop.
func (f *terraformFile) value(e hclsyntax.Expression) cty.Value {
	size := 0
	hclsyntax.VisitAll(e, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.ForExpr:
			size += maxLocal + 1
		case *hclsyntax.ScopeTraversalExpr:
			if len(n.Traversal) > 1 && n.Traversal.RootName() == "local" {
				if attribute, ok := n.Traversal[1].(hcl.TraverseAttr); ok {
					size += f.sizes[attribute.Name]
				}
			} else if n.Traversal.RootName() == "local" {
				size += maxLocal + 1 // all of them
			}
		}
		return nil
	})
	if size > maxLocal || f.evaluated+size > maxEvaluated {
		return cty.DynamicVal
	}
	f.evaluated += size
	v, problems := e.Value(f.context)
	if problems.HasErrors() {
		return cty.DynamicVal
	}
	v, _ = v.UnmarkDeep()
	return v
}

// release judges one helm_release; false says that it is of another chart.
func (f *terraformFile) release(b *hclsyntax.Block) bool {
	use := chartUse{where: "helm_release " + b.Labels[1], raw: true, asText: `write type = "string"`}
	attributes := b.Body.Attributes
	for _, name := range []string{"chart", "name"} {
		if a := attributes[name]; a != nil && use.chart == "" {
			if n := f.node(a.Expr); n.Tag != unknownTag {
				use.chart = n.Value
			}
		}
	}
	if a := attributes["version"]; a != nil {
		use.version = f.node(a.Expr)
	}
	if a := attributes["values"]; a != nil {
		use.values = f.values(a.Expr)
	}
	for _, name := range []string{"set", "set_sensitive", "set_list"} {
		if a := attributes[name]; a != nil {
			n := f.node(a.Expr)
			use.parameters = append(use.parameters, n)
			if name == "set_sensitive" {
				f.sensitive(n)
			}
		}
	}
	blocks := &yaml.Node{Kind: yaml.SequenceNode, Line: b.Range().Start.Line}
	for _, inner := range b.Body.Blocks {
		switch {
		case slices.Contains([]string{"set", "set_sensitive", "set_list"}, inner.Type):
			n := f.attributes(inner.Body)
			blocks.Content = append(blocks.Content, n)
			if inner.Type == "set_sensitive" {
				f.sensitive(n)
			}
		case inner.Type == "dynamic":
			f.report(inner.Range(), "not-judged", report.Note, "dynamic "+strings.Join(inner.Labels, " "), "Terraform computes these settings, so they are not judged", "")
		}
	}
	use.parameters = append(use.parameters, blocks)
	d := &doc{file: f.name, reader: &fields.Reader{}}
	return f.carrier(d, []chartUse{use})
}

// attributes are those of a block, as a mapping.
func (f *terraformFile) attributes(body *hclsyntax.Body) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, name := range names(body.Attributes) {
		a := body.Attributes[name]
		key := at(a.NameRange, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name})
		n.Content = append(n.Content, key, f.node(a.Expr))
	}
	return n
}

// joining are the functions that make one list of their arguments, in order.
var joining = []string{"compact", "concat", "flatten"}

// values are the elements of the argument values: texts of YAML, yamlencode and files.
func (f *terraformFile) values(e hclsyntax.Expression) []*yaml.Node {
	all := func(list []hclsyntax.Expression) (out []*yaml.Node) {
		for _, element := range list {
			out = append(out, f.values(element)...)
		}
		return out
	}
	switch e := e.(type) {
	case *hclsyntax.ParenthesesExpr:
		return f.values(e.Expression)
	case *hclsyntax.ConditionalExpr:
		return append(f.values(e.TrueResult), f.values(e.FalseResult)...)
	case *hclsyntax.TupleConsExpr:
		return all(e.Exprs)
	case *hclsyntax.FunctionCallExpr:
		if slices.Contains(joining, e.Name) {
			return all(e.Args)
		}
		if len(e.Args) == 1 && (isEncoded(e) || e.Name == "file") {
			return []*yaml.Node{f.node(e.Args[0])}
		}
	}
	return []*yaml.Node{f.text(e)}
}

// isEncoded reports whether a call makes a document of its argument.
func isEncoded(e *hclsyntax.FunctionCallExpr) bool {
	return len(e.Args) == 1 && (e.Name == "yamlencode" || e.Name == "jsonencode")
}

// text is a template, a here-document for one, with what is not known left as ${…}.
func (f *terraformFile) text(e hclsyntax.Expression) *yaml.Node {
	template, ok := e.(*hclsyntax.TemplateExpr)
	if !ok {
		return f.node(e)
	}
	var out strings.Builder
	for _, part := range template.Parts {
		v := f.value(part)
		if n := scalarNode(v); n == nil {
			out.WriteString("${" + string(part.Range().SliceBytes(f.source)) + "}")
		} else {
			out.WriteString(n.Value)
		}
		if out.Len() > len(f.source)+maxLocal {
			return at(template.Range(), &yaml.Node{Kind: yaml.ScalarNode, Tag: unknownTag})
		}
	}
	n := at(template.Range(), &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: out.String()})
	if strings.Contains(n.Value, "\n") {
		n.Style = yaml.LiteralStyle
	}
	return n
}

// at gives a node the place of an expression.
func at(r hcl.Range, n *yaml.Node) *yaml.Node {
	n.Line, n.Column = r.Start.Line, r.Start.Column
	return n
}

// node is an expression as YAML has it, each part at its place in the file.
func (f *terraformFile) node(e hclsyntax.Expression) *yaml.Node {
	switch e := e.(type) {
	case *hclsyntax.ParenthesesExpr:
		return f.node(e.Expression)
	case *hclsyntax.ObjectConsExpr:
		n := at(e.Range(), &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"})
		for _, item := range e.Items {
			key := scalarNode(f.value(item.KeyExpr))
			if key == nil {
				f.report(item.KeyExpr.Range(), "not-judged", report.Note, "", "the name of this setting is not known here, so it is not judged", "")
				continue
			}
			key.Tag = "!!str"
			n.Content = append(n.Content, at(item.KeyExpr.Range(), key), f.node(item.ValueExpr))
		}
		return n
	case *hclsyntax.TupleConsExpr:
		n := at(e.Range(), &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"})
		for _, element := range e.Exprs {
			n.Content = append(n.Content, f.node(element))
		}
		return n
	case *hclsyntax.FunctionCallExpr:
		if isEncoded(e) {
			n := f.node(e.Args[0])
			n.Style |= yaml.FlowStyle // of one line, which is that of the call
			if text, err := yaml.Marshal(n); err == nil && n.Tag != unknownTag {
				return at(e.Range(), &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: string(text), Style: yaml.DoubleQuotedStyle})
			}
		}
	}
	n := valueNode(e.Range(), f.value(e))
	if n.Tag == unknownTag {
		n.Value = string(e.Range().SliceBytes(f.source))
	}
	return n
}

// valueNode is a value as YAML has it, all of it at the place of its expression.
func valueNode(place hcl.Range, v cty.Value) *yaml.Node {
	unknown := at(place, &yaml.Node{Kind: yaml.ScalarNode, Tag: unknownTag})
	if !v.IsKnown() {
		return unknown
	}
	if n := scalarNode(v); n != nil {
		return at(place, n)
	}
	t := v.Type()
	if v.IsNull() || !v.CanIterateElements() {
		return unknown
	}
	isMap := t.IsObjectType() || t.IsMapType()
	n := at(place, &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"})
	if isMap {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for it := v.ElementIterator(); it.Next(); {
		key, value := it.Element()
		if isMap {
			n.Content = append(n.Content, at(place, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key.AsString()}))
		}
		n.Content = append(n.Content, valueNode(place, value))
	}
	return n
}

// scalarNode is a single value as yamlencode writes it; nil for what is none, or not known.
func scalarNode(v cty.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode}
	switch {
	case !v.IsKnown():
		return nil
	case v.IsNull():
		n.Tag, n.Value = "!!null", "null"
	case v.Type() == cty.String:
		n.Tag, n.Value, n.Style = "!!str", v.AsString(), yaml.DoubleQuotedStyle
	case v.Type() == cty.Bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(v.True())
	case v.Type() == cty.Number:
		number := v.AsBigFloat()
		n.Tag, n.Value = "!!float", number.Text('g', -1)
		if whole, accuracy := number.Int64(); accuracy == big.Exact {
			n.Tag, n.Value = "!!int", fmt.Sprint(whole)
		}
	default:
		return nil
	}
	return n
}

// beside reads a file that another one names, relative to it.
func (r *run) beside(file, name string) ([]byte, string, error) {
	if r.read == nil {
		return nil, name, errNotRead
	}
	shown := name
	if !path.IsAbs(name) {
		shown = path.Join(path.Dir(file), name)
	}
	data, err := r.read(file, shown)
	if err == nil {
		r.learn(string(data))
	}
	return data, shown, err
}
