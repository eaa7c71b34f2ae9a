package verdict

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

// WriteText writes the tree for a human: the cluster's rows, then a branch per node, with the next
// step below each row that is not as intended. Nodes whose rows are the same but for the node's name
// share a branch, so that 5,000 healthy nodes are one. Verbose shows the rows that are OK too; without
// it they are counted.
func (t *Tree) WriteText(w io.Writer, style finding.Style, verbose bool) error {
	out := bufio.NewWriter(w)
	if v, found := t.start(); found {
		fmt.Fprintf(out, "%s %s\n\n", style.Bold("start here:"), finding.OneLine(v))
	}
	for _, b := range t.branches() {
		fmt.Fprintln(out, style.Bold(finding.OneLine(b.heading())))
		ok := 0
		for _, v := range b.rows {
			if v.State == OK && !verbose {
				ok++
				continue
			}
			t.writeRow(out, style, v)
		}
		if ok > 0 {
			fmt.Fprintf(out, "  %s %s\n", paint(style, OK), style.Dim(counted(ok)))
		}
	}
	return out.Flush()
}

// start is the first step for somebody who wants it mended: the worst row that names a cause, and its
// next step.
func (t *Tree) start() (string, bool) {
	if !t.Start {
		return "", false
	}
	best := -1
	rank := func(v Verdict) int {
		switch {
		case v.State != Failed && v.State != Waiting:
			return 0
		case v.State == Waiting:
			return 1
		case v.Cause != "":
			return 4
		case v.ID == "first-broken-link":
			return 3
		}
		return 2
	}
	for i, v := range t.Verdicts {
		if rank(v) > 0 && (best < 0 || rank(v) > rank(t.Verdicts[best])) {
			best = i
		}
	}
	if best < 0 {
		return "", false
	}
	v := t.Verdicts[best]
	text := v.Subject
	switch {
	case v.Nodes != "":
		text += " on " + v.Nodes
	case v.Node != "":
		text += " on " + v.Node
	}
	reason, _, _ := strings.Cut(v.Reason, ": mend it before")
	if v.ID == "first-broken-link" {
		for _, w := range t.Verdicts {
			if w.Node == v.Node && w.Subject == v.Subject && w.ID == "operand" {
				reason = w.Reason
			}
		}
	}
	text += ": " + reason
	if v.Next != "" {
		text += " → " + v.Next
	}
	return text, true
}

func counted(ok int) string {
	if ok == 1 {
		return "1 check as intended"
	}
	return fmt.Sprintf("%d checks as intended", ok)
}

func (t *Tree) writeRow(out io.Writer, style finding.Style, v Verdict) {
	age := ""
	if !v.Since.IsZero() && !t.At.IsZero() {
		age = style.Dim("  for " + t.At.Sub(v.Since).Round(time.Second).String())
	}
	fmt.Fprintf(out, "  %s %s%s\n", paint(style, v.State), style.Bold(finding.OneLine(v.Subject)), age)
	for _, line := range finding.Fold(finding.OneLine(v.Reason), finding.TextWidth-10) {
		fmt.Fprintf(out, "          %s\n", line)
	}
	if e := v.Evidence; e.Kind == "event" && !strings.Contains(v.Reason, e.Text) {
		seen := fmt.Sprintf("%s of %s: %s", e.Kind, e.Object, e.Text)
		if age := t.At.Sub(e.Time); !e.Time.IsZero() && !t.At.IsZero() && age >= 0 {
			seen = fmt.Sprintf("%s of %s, %s ago: %s", e.Kind, e.Object, age.Round(time.Second), e.Text)
		}
		for _, line := range finding.Fold(finding.OneLine(seen), finding.TextWidth-10) {
			fmt.Fprintf(out, "          %s\n", style.Dim(line))
		}
	}
	if v.Nodes != "" {
		for _, line := range finding.Fold(finding.OneLine("on "+v.Nodes), finding.TextWidth-10) {
			fmt.Fprintf(out, "          %s\n", line)
		}
	}
	if v.Next != "" {
		fmt.Fprintf(out, "        %s %s\n", style.Green("→"), finding.OneLine(v.Next))
	}
}

// paint returns the state's name in its color, padded to the width of the longest.
func paint(style finding.Style, s State) string {
	word := fmt.Sprintf("%-7s", s)
	switch s {
	case OK:
		return style.Green(word)
	case Failed:
		return style.Red(word)
	case Note:
		return style.Blue(word)
	}
	return style.Yellow(word)
}

// A branch is what is shown under one heading.
type branch struct {
	nodes []string // empty for the cluster
	rows  []Verdict
}

func (b branch) heading() string {
	switch n := len(b.nodes); {
	case n == 0:
		return "cluster"
	case n <= 3:
		return strings.Join(b.nodes, ", ")
	default:
		return fmt.Sprintf("%s, %s and %d more nodes", b.nodes[0], b.nodes[1], n-2)
	}
}

// branches groups the sorted rows by node, and the nodes by equal rows. Branches with something
// wrong come first.
func (t *Tree) branches() []branch {
	sorted := *t
	sorted.Verdicts = slices.Clone(t.Verdicts)
	sorted.Sort()
	var all []branch
	known := map[string]int{} // rows as text → index in all
	for rows := range slices.Values(chunks(sorted.Verdicts)) {
		node := rows[0].Node
		if node == "" {
			all = append(all, branch{rows: rows})
			continue
		}
		var key strings.Builder
		for _, v := range rows {
			if v.Evidence.Time, v.Node = (time.Time{}), ""; v.Evidence.Kind != "event" {
				v.Evidence = Evidence{} // it is not shown
			}
			fmt.Fprintf(&key, "%+v\n", v)
		}
		name := strings.ReplaceAll(key.String(), node, "\x00")
		if i, found := known[name]; found {
			all[i].nodes = append(all[i].nodes, node)
			continue
		}
		known[name] = len(all)
		all = append(all, branch{nodes: []string{node}, rows: rows})
	}
	slices.SortStableFunc(all, func(a, b branch) int {
		if len(a.nodes) == 0 || len(b.nodes) == 0 {
			return cmp.Compare(min(1, len(a.nodes)), min(1, len(b.nodes)))
		}
		return cmp.Compare(worst(b.rows), worst(a.rows))
	})
	return all
}

// chunks splits rows that are sorted by node.
func chunks(rows []Verdict) [][]Verdict {
	var all [][]Verdict
	for len(rows) > 0 {
		end := slices.IndexFunc(rows, func(v Verdict) bool { return v.Node != rows[0].Node })
		if end < 0 {
			end = len(rows)
		}
		all = append(all, rows[:end:end])
		rows = rows[end:]
	}
	return all
}

func worst(rows []Verdict) State {
	return slices.MaxFunc(rows, func(a, b Verdict) int { return cmp.Compare(a.State, b.State) }).State
}

// Summary counts the rows that are not as intended: "2 failed, 1 warning, 40 ok".
func (t *Tree) Summary() string {
	var words []string
	for s := Failed; ; s-- {
		if n := t.Count(s); n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, s))
		}
		if s == OK {
			break
		}
	}
	if len(words) == 0 {
		return "nothing was judged"
	}
	return strings.Join(words, ", ")
}
