package vocabulary

import (
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// queriesBoth reports whether an "or" around a selector has another side that queries the same
// under the new names, whatever factors stand there. Such an expression serves either vocabulary as
// it is; its side is left alone.
func (w *work) queriesBoth(v *parser.VectorSelector, path []parser.Node) bool {
	var operand parser.Expr = v
	for i := len(path) - 1; i >= 0; i-- {
		n, ok := path[i].(parser.Expr)
		if !ok {
			continue // the arguments of a call
		}
		b, isBinary := n.(*parser.BinaryExpr)
		switch {
		case isBinary && b.Op == parser.LOR:
			other := b.LHS
			if holds := operand.PositionRange(); other.PositionRange().Start <= holds.Start && holds.End <= other.PositionRange().End {
				other = b.RHS
			}
			want := w.canonical(operand, true)
			for _, o := range operands(other) {
				if want != "" && w.canonical(o, false) == want {
					at := operand.PositionRange()
					w.kept = append(w.kept, span{int(at.Start), int(at.End)})
					return true
				}
			}
		case !isParen(n):
			operand = n
		}
	}
	return false
}

func isParen(e parser.Expr) bool {
	_, ok := e.(*parser.ParenExpr)
	return ok
}

// operands returns the sides of a chain of "or".
func operands(e parser.Expr) []parser.Expr {
	switch n := e.(type) {
	case *parser.ParenExpr:
		return operands(n.Expr)
	case *parser.BinaryExpr:
		if n.Op == parser.LOR {
			return append(operands(n.LHS), operands(n.RHS)...)
		}
	}
	return []parser.Expr{e}
}

// canonical returns the text of an expression without parentheses and without factors, and with the
// new names where renamed is set; "" where it cannot be read by itself.
func (w *work) canonical(e parser.Expr, renamed bool) string {
	at := e.PositionRange()
	copied, err := w.parser.ParseExpr(w.text[at.Start:at.End])
	if err != nil {
		return ""
	}
	list := func(names []string) {
		for i, name := range names {
			if c, ok := w.label(name, true); ok && renamed {
				names[i] = c.New
			}
		}
	}
	var bare func(e parser.Expr) parser.Expr
	bare = func(e parser.Expr) parser.Expr {
		switch n := e.(type) {
		case *parser.ParenExpr:
			return bare(n.Expr)
		case *parser.StepInvariantExpr:
			return bare(n.Expr)
		case *parser.UnaryExpr:
			n.Expr = bare(n.Expr)
		case *parser.SubqueryExpr:
			n.Expr = bare(n.Expr)
		case *parser.MatrixSelector:
			n.VectorSelector = bare(n.VectorSelector)
		case *parser.AggregateExpr:
			n.Expr = bare(n.Expr)
			list(n.Grouping)
		case *parser.Call:
			for i := range n.Args {
				n.Args[i] = bare(n.Args[i])
			}
		case *parser.BinaryExpr:
			n.LHS, n.RHS = bare(n.LHS), bare(n.RHS)
			if n.Op == parser.MUL || n.Op == parser.DIV {
				if _, factor := n.RHS.(*parser.NumberLiteral); factor {
					return n.LHS
				}
				if _, factor := n.LHS.(*parser.NumberLiteral); factor && n.Op == parser.MUL {
					return n.RHS
				}
			}
			if n.VectorMatching != nil {
				list(n.VectorMatching.MatchingLabels)
				list(n.VectorMatching.Include)
			}
		case *parser.VectorSelector:
			if renamed {
				w.rename(n)
			}
		}
		return e
	}
	return bare(copied).String()
}

// rename gives a selector its new names.
func (w *work) rename(v *parser.VectorSelector) {
	if c, _, ok := w.metric(v.Name); ok {
		v.Name = c.New
	}
	for i, m := range v.LabelMatchers {
		switch {
		case m.Name == model.MetricNameLabel:
			if c, _, ok := w.metric(m.Value); ok && m.Type == labels.MatchEqual {
				v.LabelMatchers[i] = labels.MustNewMatcher(m.Type, m.Name, c.New)
			}
		default:
			if c, ok := w.label(m.Name, true); ok {
				m.Name = c.New
			}
		}
	}
}

// keeps reports whether an item stands in what is left alone.
func (w *work) keeps(item parser.Item) bool {
	for _, s := range w.kept {
		if s.start <= int(item.Pos) && int(item.Pos) < s.end {
			return true
		}
	}
	return false
}
