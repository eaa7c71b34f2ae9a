package vocabulary

import (
	"math"
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/promql/parser"
)

// A factor says how to get the old value from the new one: times by, or divided by it. The
// catalog's factors are powers of ten and of two, so that one of the two is a whole number.
type factor struct {
	divide bool
	by     float64
}

// factorOf returns the factor between two scales of one sample.
func factorOf(from, to float64) factor {
	if to >= from {
		return factor{divide: true, by: whole(to / from)}
	}
	return factor{by: whole(from / to)}
}

// whole takes away the rounding of a quotient that is a whole number.
func whole(x float64) float64 {
	if r := math.Round(x); math.Abs(x-r) < 1e-9*x {
		return r
	}
	return x
}

func (f factor) isSet() bool { return f.by != 0 }
func (f factor) one() bool   { return f.by == 1 }

// squared is the factor of a variance.
func (f factor) squared() factor { return factor{f.divide, f.by * f.by} }

// String returns the factor as it stands behind an expression.
func (f factor) String() string {
	sign := " * "
	if f.divide {
		sign = " / "
	}
	number := strconv.FormatFloat(f.by, 'f', -1, 64)
	if e := math.Round(math.Log10(f.by)); e >= 6 && f.by == math.Pow(10, e) {
		number = "1e" + strconv.Itoa(int(e))
	}
	return sign + number
}

// undone reports whether the author's own multiplication or division takes the factor away.
func (f factor) undone(op parser.ItemType, literal float64) bool {
	return literal == f.by && (f.divide && op == parser.MUL || !f.divide && op == parser.DIV)
}

// growth says how the result of a function of a range grows with its values: with their power 0, 1
// or 2.
func growth(function string) (power int, known bool) {
	switch function {
	case "rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear",
		"double_exponential_smoothing", "holt_winters", "avg_over_time", "sum_over_time",
		"min_over_time", "max_over_time", "last_over_time", "first_over_time",
		"stddev_over_time", "quantile_over_time", "mad_over_time":
		return 1, true
	case "stdvar_over_time":
		return 2, true
	case "count_over_time", "present_over_time", "absent_over_time", "changes", "resets",
		"ts_of_min_over_time", "ts_of_max_over_time", "ts_of_first_over_time", "ts_of_last_over_time":
		return 0, true
	default:
		return 0, false
	}
}

// rescale wraps a selector, or the function of its range, so that the result stays in the old unit.
func (w *work) rescale(v parser.Expr, path []parser.Node, f factor) {
	if len(path) == 0 {
		w.wrap(v, path, f)
		return
	}
	if _, ranged := path[len(path)-1].(*parser.MatrixSelector); ranged {
		w.rescaleRange(path[:len(path)-1], f)
		return
	}
	if !readsSelector(path) {
		w.wrap(v, path, f)
	}
}

// readsSelector reports whether the innermost node of a path, parentheses aside, looks at which
// series there are and not at their values, so that a plain selector has to stay one.
func readsSelector(path []parser.Node) bool {
	for _, n := range slices.Backward(path) {
		switch n := n.(type) {
		case *parser.ParenExpr:
			continue
		case *parser.Call:
			return n.Func.Name == "absent" || n.Func.Name == "timestamp"
		case *parser.AggregateExpr:
			return n.Op == parser.COUNT || n.Op == parser.GROUP
		}
		return false
	}
	return false
}

func (w *work) rescaleRange(path []parser.Node, f factor) {
	if len(path) == 0 {
		w.noteByHand("a range of raw samples, which are now in another unit (old value: new value%s)", f)
		return
	}
	call, ok := path[len(path)-1].(*parser.Call)
	if !ok {
		w.noteByHand("a range of raw samples, which are now in another unit (old value: new value%s)", f)
		return
	}
	power, known := growth(call.Func.Name)
	switch {
	case !known:
		w.noteByHand("%s() of values that are now in another unit (old value: new value%s)", call.Func.Name, f)
	case power == 1:
		w.wrap(call, path[:len(path)-1], f)
	case power == 2:
		w.wrap(call, path[:len(path)-1], f.squared())
	}
}

// wrap puts the factor behind an expression, in parentheses where the expression's place binds
// tighter, or takes away the author's own factor where that undoes it.
func (w *work) wrap(n parser.Expr, path []parser.Node, f factor) {
	pos := n.PositionRange()
	start, end := int(pos.Start), int(pos.End)
	parens := false
	if len(path) > 0 {
		switch p := path[len(path)-1].(type) {
		case *parser.SubqueryExpr:
			parens = true
		case *parser.BinaryExpr:
			left := p.LHS == n
			if w.cancels(p, left, f) && !readsSelector(path[:len(path)-1]) {
				whole := p.PositionRange()
				if left {
					w.edits = append(w.edits, edit{span{end, int(whole.End)}, ""})
				} else {
					w.edits = append(w.edits, edit{span{int(whole.Start), start}, ""})
				}
				return
			}
			switch p.Op {
			case parser.POW:
				parens = true
			case parser.MUL, parser.DIV, parser.MOD, parser.ATAN2:
				parens = !left
			}
		}
	}
	if !parens {
		w.edits = append(w.edits, edit{span{end, end}, f.String()})
		return
	}
	w.edits = append(w.edits, edit{span{start, start}, "("}, edit{span{end, end}, f.String() + ")"})
}

// cancels reports whether the other side of p is a number that undoes f.
func (w *work) cancels(p *parser.BinaryExpr, left bool, f factor) bool {
	other := p.RHS
	if !left {
		other = p.LHS
	}
	number, ok := other.(*parser.NumberLiteral)
	if !ok || !left && p.Op != parser.MUL || !f.undone(p.Op, number.Val) {
		return false
	}
	at := number.PositionRange()
	return !w.touches(span{int(at.Start), int(at.End)})
}
