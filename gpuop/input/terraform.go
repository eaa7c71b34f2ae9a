package input

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// UnknownTag marks a node whose value cannot be determined from the files.
const UnknownTag = "!unknown"

// TerraformFile is what a Terraform file installs: values, parameters and manifests. The nodes have the line numbers of
// the file.
type TerraformFile struct {
	// Uses are the charts that helm_release resources install.
	Uses []ChartUse
	// Manifests are Kubernetes objects. Texts are YAML texts of Kubernetes objects.
	Manifests, Texts []*yaml.Node
	// Sensitive lists the settings from set_sensitive, which are also among the parameters.
	Sensitive []*yaml.Node
	// Broken means that the text is not valid Terraform.
	Broken   bool
	Findings []check.Finding

	name   string
	source []byte
	locals map[string]hclsyntax.Expression
	// left is how many nodes and bytes may still be created. Without a limit, nested locals can expand exponentially.
	left int
}

// maxMade limits the nodes, and the bytes of templates, that are created from a file.
const maxMade = 256 << 10

// ReadTerraform parses the resources helm_release, kubernetes_manifest and kubectl_manifest of a Terraform file.
// Findings name the file name.
func ReadTerraform(name string, data []byte) *TerraformFile {
	f := &TerraformFile{name: name, source: data, locals: map[string]hclsyntax.Expression{}, left: maxMade}
	if reason := tooComplex(string(data)); reason != "" {
		f.report(hcl.Range{}, Skipped, check.Note, "", reason)
		return f
	}
	file, problems := hclsyntax.ParseConfig(data, name, hcl.InitialPos)
	for _, p := range problems {
		if p.Severity == hcl.DiagError && p.Subject != nil && !f.Broken {
			f.Broken = true
			reason := "Terraform cannot parse this: " + p.Summary + "; " + p.Detail
			f.report(*p.Subject, terraformSyntax, check.Error, "", reason)
		}
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return f
	}
	for _, b := range body.Blocks {
		for name, a := range b.Body.Attributes {
			if b.Type == "locals" {
				f.locals[name] = a.Expr
			}
		}
	}
	for _, b := range body.Blocks {
		if b.Type == "resource" && len(b.Labels) == 2 {
			f.resource(b)
		}
	}
	return f
}

func (f *TerraformFile) report(at hcl.Range, id *check.Check, severity check.Severity, subject, reason string) {
	f.Findings = append(f.Findings, check.Finding{
		Check: id, Severity: severity, Subject: subject, Reason: reason,
		File: f.name, Line: at.Start.Line, Column: at.Start.Column,
	})
}

func (f *TerraformFile) resource(b *hclsyntax.Block) {
	attributes := b.Body.Attributes
	switch kind := b.Labels[0]; {
	case kind == "helm_release":
		f.release(b)
	case kind == "kubernetes_manifest" && attributes["manifest"] != nil:
		if n := f.node(attributes["manifest"].Expr); n.Kind == yaml.MappingNode {
			f.Manifests = append(f.Manifests, n)
		}
	case kind == "kubectl_manifest" && attributes["yaml_body"] != nil:
		if n := f.text(attributes["yaml_body"].Expr); n.Tag != UnknownTag {
			f.Texts = append(f.Texts, n)
		}
	}
}

// settings are the names of arguments and blocks that contain settings.
var settings = []string{"set", "set_sensitive", "set_list"}

func (f *TerraformFile) release(b *hclsyntax.Block) {
	use := ChartUse{Where: "helm_release " + b.Labels[1], Raw: true, AsText: `write type = "string"`}
	set := func(name string, n *yaml.Node) {
		use.Parameters = append(use.Parameters, n)
		if name == "set_sensitive" {
			f.Sensitive = append(f.Sensitive, n)
		}
	}
	attributes := b.Body.Attributes
	for _, name := range []string{"chart", "name"} {
		if a := attributes[name]; a != nil && use.Chart == "" {
			if n := f.node(a.Expr); n.Tag != UnknownTag {
				use.Chart = n.Value
			}
		}
	}
	if a := attributes["repository"]; a != nil {
		use.Repository = f.node(a.Expr).Value
	}
	if a := attributes["version"]; a != nil {
		use.Version = f.node(a.Expr)
	}
	if a := attributes["values"]; a != nil {
		use.Values = f.values(a.Expr)
	}
	for _, name := range settings {
		if a := attributes[name]; a != nil {
			set(name, f.node(a.Expr))
		}
	}
	for _, inner := range b.Body.Blocks {
		if inner.Type == "dynamic" {
			subject := "dynamic " + strings.Join(inner.Labels, " ")
			f.report(inner.Range(), Skipped, check.Note, subject, "Terraform computes these settings; skipped")
		}
		if slices.Contains(settings, inner.Type) {
			setting := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			for _, name := range []string{"name", "type", "value"} {
				if a := inner.Body.Attributes[name]; a != nil {
					key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}
					key.Line, key.Column = a.NameRange.Start.Line, a.NameRange.Start.Column
					setting.Content = append(setting.Content, key, f.node(a.Expr))
				}
			}
			set(inner.Type, &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{setting}})
		}
	}
	f.Uses = append(f.Uses, use)
}

// joining are functions that combine their arguments into one list.
var joining = []string{"compact", "concat", "flatten"}

// values returns the elements of the argument "values": YAML texts, yamlencode calls and files. For a conditional, it
// returns the elements of both branches.
func (f *TerraformFile) values(e hclsyntax.Expression) (out []*yaml.Node) {
	switch e := e.(type) {
	case *hclsyntax.ParenthesesExpr:
		return f.values(e.Expression)
	case *hclsyntax.TemplateWrapExpr:
		return f.values(e.Wrapped)
	case *hclsyntax.ConditionalExpr:
		return append(f.values(e.TrueResult), f.values(e.FalseResult)...)
	case *hclsyntax.TupleConsExpr:
		for _, element := range e.Exprs {
			out = append(out, f.values(element)...)
		}
		return out
	case *hclsyntax.FunctionCallExpr:
		switch {
		case slices.Contains(joining, e.Name):
			return f.values(&hclsyntax.TupleConsExpr{Exprs: e.Args})
		case len(e.Args) == 1 && slices.Contains([]string{"yamlencode", "jsonencode", "file"}, e.Name):
			return []*yaml.Node{f.node(e.Args[0])}
		}
	}
	return []*yaml.Node{f.text(e)}
}

// node converts an expression to a node. A text with an unknown part is unknown.
func (f *TerraformFile) node(e hclsyntax.Expression) *yaml.Node {
	n := f.text(e)
	if strings.Contains(n.Value, "${") {
		n.Tag = UnknownTag
	}
	return n
}

// text converts an expression to a node. Unknown parts of a text are kept as ${…}.
func (f *TerraformFile) text(e hclsyntax.Expression) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: UnknownTag}
	if f.left--; f.left > 0 {
		f.read(n, e)
	}
	n.Line, n.Column = e.Range().Start.Line, e.Range().Start.Column
	if n.Tag == UnknownTag {
		n.Value = string(e.Range().SliceBytes(f.source))
	}
	return n
}

// read converts an expression into n. The tag of n is unchanged if the value is computed or external.
func (f *TerraformFile) read(n *yaml.Node, e hclsyntax.Expression) {
	switch e := e.(type) {
	case *hclsyntax.ParenthesesExpr:
		*n = *f.text(e.Expression)
	case *hclsyntax.TemplateWrapExpr:
		*n = *f.node(e.Wrapped)
	case *hclsyntax.LiteralValueExpr:
		scalar(n, e.Val)
	case *hclsyntax.ObjectConsKeyExpr:
		if word := hcl.ExprAsKeyword(e.Wrapped); word != "" && !e.ForceNonLiteral {
			scalar(n, cty.StringVal(word))
		} else {
			*n = *f.node(e.Wrapped)
		}
	case *hclsyntax.TemplateExpr:
		f.template(n, e)
	case *hclsyntax.ObjectConsExpr:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		for _, item := range e.Items {
			key := f.node(item.KeyExpr)
			if key.Tag == UnknownTag {
				const reason = "Terraform computes the name of this setting; skipped"
				f.report(item.KeyExpr.Range(), Skipped, check.Note, "", reason)
				continue
			}
			key.Tag = "!!str"
			n.Content = append(n.Content, key, f.node(item.ValueExpr))
		}
	case *hclsyntax.TupleConsExpr:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		for _, element := range e.Exprs {
			n.Content = append(n.Content, f.node(element))
		}
	case *hclsyntax.FunctionCallExpr:
		if len(e.Args) == 1 && (e.Name == "yamlencode" || e.Name == "jsonencode") {
			f.encode(n, f.node(e.Args[0]))
		}
	case *hclsyntax.ScopeTraversalExpr:
		f.reference(n, e.Traversal)
	}
}

func (f *TerraformFile) template(n *yaml.Node, e *hclsyntax.TemplateExpr) {
	var out strings.Builder
	for _, part := range e.Parts {
		inner := f.node(part)
		if inner.Kind != yaml.ScalarNode || inner.Tag == UnknownTag {
			inner.Value = "${" + string(part.Range().SliceBytes(f.source)) + "}"
		}
		out.WriteString(inner.Value)
		if f.left -= len(inner.Value); f.left < 0 {
			return
		}
	}
	scalar(n, cty.StringVal(out.String()))
	if strings.Contains(n.Value, "\n") {
		n.Style = yaml.LiteralStyle
	}
}

// reference resolves a reference to a local of the file. Paths such as path.module become ".".
func (f *TerraformFile) reference(n *yaml.Node, path hcl.Traversal) {
	var names []string
	for _, step := range path {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			names = append(names, step.Name)
		case hcl.TraverseAttr:
			names = append(names, step.Name)
		default:
			return
		}
	}
	if len(names) == 2 && names[0] == "path" {
		scalar(n, cty.StringVal("."))
	} else if len(names) > 1 && names[0] == "local" && f.locals[names[1]] != nil {
		if found := fields.Get(f.node(f.locals[names[1]]), names[2:]...); found != nil {
			*n = *found
		}
	}
}

// encode stores value in n as a YAML text. It leaves n unchanged if the value is unknown.
func (f *TerraformFile) encode(n, value *yaml.Node) {
	value.Style |= yaml.FlowStyle
	if text, err := yaml.Marshal(value); err == nil && value.Tag != UnknownTag {
		scalar(n, cty.StringVal(string(text)))
	}
}

// scalar stores a single value in n, as yamlencode writes it.
func scalar(n *yaml.Node, v cty.Value) {
	switch {
	case !v.IsKnown():
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
	}
}
