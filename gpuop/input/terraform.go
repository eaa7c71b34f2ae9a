package input

import (
	"fmt"
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

// TerraformFile is what a Terraform file installs. The nodes have the line numbers of the file.
type TerraformFile struct {
	// Tasks are the resources helm_release, kubernetes_manifest and kubectl_manifest.
	Tasks []Task
	// Secrets are the values from set_sensitive, which are also among the parameters.
	Secrets []string
	// Broken means that the text is not valid Terraform.
	Broken   bool
	Findings []check.Finding

	name   string
	source []byte
	locals map[string]hclsyntax.Expression
	// left is how many nodes and bytes may still be created. Without a limit, nested locals can expand exponentially.
	left int
}

const maxMade = 256 << 10

// ReadTerraform parses a Terraform file. Findings name the file name.
func ReadTerraform(name string, data []byte) *TerraformFile {
	f := &TerraformFile{name: name, source: data, locals: map[string]hclsyntax.Expression{}, left: maxMade}
	if reason := tooComplex(string(data)); reason != "" {
		f.report(hcl.Range{}, Skipped, "", reason)
		return f
	}
	file, problems := hclsyntax.ParseConfig(data, name, hcl.InitialPos)
	for _, p := range problems {
		if p.Severity == hcl.DiagError && p.Subject != nil && !f.Broken {
			f.Broken = true
			f.report(*p.Subject, terraformSyntax, "", "Terraform cannot parse this: "+p.Summary+"; "+p.Detail)
		}
	}
	blocks := file.Body.(*hclsyntax.Body).Blocks
	for _, b := range blocks {
		for name, a := range b.Body.Attributes {
			if b.Type == "locals" {
				f.locals[name] = a.Expr
			}
		}
	}
	for _, b := range blocks {
		if b.Type == "resource" && len(b.Labels) == 2 {
			f.resource(b)
		}
	}
	return f
}

func (f *TerraformFile) report(at hcl.Range, id *check.Check, subject, reason string) {
	f.Findings = append(f.Findings, check.Finding{
		Check: id, Severity: id.Severity, Subject: subject, Reason: reason,
		File: f.name, Line: at.Start.Line, Column: at.Start.Column,
	})
}

func (f *TerraformFile) resource(b *hclsyntax.Block) {
	switch b.Labels[0] {
	case "helm_release":
		n := f.arguments(b.Body, strings.Fields("chart name repository version values "+helmRelease.parameters)...)
		f.Tasks = append(f.Tasks, helmRelease.use(n, n, "helm_release "+b.Labels[1]))
		sensitive := fields.Get(n, "set_sensitive")
		for _, e := range append(fields.Items(sensitive), sensitive) {
			f.Secrets = append(f.Secrets, fields.Text(e, "value"))
		}
		for _, inner := range b.Body.Blocks {
			if inner.Type == "dynamic" {
				subject := "dynamic " + strings.Join(inner.Labels, " ")
				f.report(inner.Range(), Skipped, subject, "Terraform computes these settings; skipped")
			}
		}
	case "kubernetes_manifest", "kubectl_manifest":
		for _, object := range fields.Of(f.arguments(b.Body, "manifest", "yaml_body")) {
			isText := object.Name == "yaml_body" && object.Value.Tag == "!!str"
			if isText || object.Value.Kind == yaml.MappingNode {
				f.Tasks = append(f.Tasks, Task{Object: object.Value})
			}
		}
	}
}

// arguments returns arguments of a resource as a mapping. Blocks of the same name become a list, which can be empty.
func (f *TerraformFile) arguments(b *hclsyntax.Body, names ...string) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, name := range names {
		value := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		switch a := b.Attributes[name]; {
		case a == nil:
		case name == "values":
			value.Content = f.values(a.Expr)
		case name == "yaml_body":
			value = f.text(a.Expr)
		default:
			value = f.node(a.Expr)
		}
		for _, inner := range b.Blocks {
			if inner.Type == name {
				value.Content = append(value.Content, f.arguments(inner.Body, "name", "type", "value"))
			}
		}
		out.Content = append(out.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}, value)
	}
	return out
}

var (
	// joining are functions that combine their arguments into one list. encoding are functions that return a text.
	joining  = []string{"compact", "concat", "flatten"}
	encoding = []string{"yamlencode", "jsonencode"}
)

// values returns the YAML texts, yamlencode calls and files in the argument "values", in both branches of a condition.
func (f *TerraformFile) values(e hclsyntax.Expression) (out []*yaml.Node) {
	var parts []hclsyntax.Expression
	switch e := e.(type) {
	case *hclsyntax.ParenthesesExpr:
		return f.values(e.Expression)
	case *hclsyntax.TemplateWrapExpr:
		return f.values(e.Wrapped)
	case *hclsyntax.ConditionalExpr:
		parts = []hclsyntax.Expression{e.TrueResult, e.FalseResult}
	case *hclsyntax.TupleConsExpr:
		parts = e.Exprs
	case *hclsyntax.FunctionCallExpr:
		if slices.Contains(joining, e.Name) {
			parts = e.Args
		} else if len(e.Args) == 1 && (e.Name == "file" || slices.Contains(encoding, e.Name)) {
			return []*yaml.Node{f.node(e.Args[0])}
		}
	}
	if parts == nil {
		return []*yaml.Node{f.text(e)}
	}
	for _, part := range parts {
		out = append(out, f.values(part)...)
	}
	return out
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
		n.Value = f.written(e)
	}
	return n
}

func (f *TerraformFile) written(e hclsyntax.Expression) string {
	return string(e.Range().SliceBytes(f.source))
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
				f.report(item.KeyExpr.Range(), Skipped, "", "Terraform computes the name of this setting; skipped")
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
		if len(e.Args) == 1 && slices.Contains(encoding, e.Name) {
			value := f.node(e.Args[0])
			value.Style |= yaml.FlowStyle
			if text, err := yaml.Marshal(value); err == nil && value.Tag != UnknownTag {
				scalar(n, cty.StringVal(string(text)))
			}
		}
	case *hclsyntax.ScopeTraversalExpr: // a local of the file, or a path such as path.module
		names := strings.Split(f.written(e), ".")
		if len(names) == 2 && names[0] == "path" {
			scalar(n, cty.StringVal("."))
		} else if len(names) > 1 && names[0] == "local" && f.locals[names[1]] != nil {
			if found := fields.Get(f.node(f.locals[names[1]]), names[2:]...); found != nil {
				*n = *found
			}
		}
	}
}

func (f *TerraformFile) template(n *yaml.Node, e *hclsyntax.TemplateExpr) {
	var out strings.Builder
	for _, part := range e.Parts {
		inner := f.node(part)
		if inner.Kind != yaml.ScalarNode || inner.Tag == UnknownTag {
			inner.Value = "${" + f.written(part) + "}"
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
	default:
		n.Tag, n.Value = "!!int", v.AsBigFloat().Text('f', -1)
		if strings.Contains(n.Value, ".") {
			n.Tag = "!!float"
		}
	}
}
