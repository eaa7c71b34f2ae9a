package rules

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
)

var update = flag.Bool("update", false, "write the tables of docs/runbooks.md")

// written checks the part of a document between two marks, or writes it.
func written(t *testing.T, doc, mark, want string) {
	t.Helper()
	text := read(t, "docs", doc)
	begin := strings.Index(text, "<!-- "+mark+":")
	end := strings.Index(text, "<!-- end of "+mark+" -->")
	if begin < 0 || end < begin {
		t.Fatalf("docs/%s has no marks of %s", doc, mark)
	}
	begin += strings.Index(text[begin:], "\n") + 1
	want = "\n" + want + "\n"
	if text[begin:end] == want {
		return
	}
	if !*update {
		t.Fatalf("docs/%s is out of date: go test ./tests/rules -update\nwant%s\ngot%s", doc, want, text[begin:end])
	}
	if err := os.WriteFile(filepath.Join(root, "docs", doc), []byte(text[:begin]+want+text[end:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

// meaning returns the line of a counters file that serves a metric, "" where none is needed.
func meaning(name string) string {
	if n, ok := catalog.Lookup(name); ok {
		return n.Entry.Classic
	}
	if catalog.FamilyNamed(name) != nil {
		return name
	}
	return ""
}

// collected returns what a counters file serves.
func collected(t *testing.T, file []byte) map[string]bool {
	t.Helper()
	requests, problems, err := counters.Parse(bytes.NewReader(file), "file")
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	have := map[string]bool{}
	for _, r := range requests {
		have[meaning(r.Name)] = true
	}
	return have
}

// answers reports whether an expression can have a result where a counters file serves what it
// does: one side of an or is enough, and what is taken away need not be there.
func answers(e parser.Node, recorded map[string]parser.Expr, have map[string]bool) bool {
	switch n := e.(type) {
	case *parser.VectorSelector:
		if r, ok := recorded[n.Name]; ok {
			return answers(r, recorded, have)
		}
		line := meaning(n.Name)
		return line == "" || have[line]
	case *parser.BinaryExpr:
		left, right := answers(n.LHS, recorded, have), answers(n.RHS, recorded, have)
		switch n.Op {
		case parser.LOR:
			return left || right
		case parser.LUNLESS:
			return left
		default:
			return left && right
		}
	default:
		for c := range parser.ChildrenIter(e) {
			if !answers(c, recorded, have) {
				return false
			}
		}
		return true
	}
}

// lines returns the lines of a counters file that an expression can use.
func lines(e parser.Node, recorded map[string]parser.Expr) []string {
	var list []string
	for _, name := range selected(e) {
		if r, ok := recorded[name]; ok {
			list = append(list, lines(r, recorded)...)
		} else if line := meaning(name); line != "" {
			list = append(list, line)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func recordings(t *testing.T) map[string]parser.Expr {
	recorded := map[string]parser.Expr{}
	for _, r := range allRules(t) {
		if r.Record != "" {
			recorded[r.Record] = r.expr
		}
	}
	return recorded
}

// shipped returns a shipped counters file.
func shipped(t *testing.T, name string) []byte {
	t.Helper()
	content, ok := etc.File(name)
	if !ok {
		t.Fatalf("no file %s", name)
	}
	return content
}

// The table says which lines of a counters file an alert uses, and whether it can ring with those
// of the default file. With those of the health file, and of the fleet's, all can.
func TestNeeds(t *testing.T) {
	recorded := recordings(t)
	standard := collected(t, etc.Default())
	for _, name := range []string{etc.HealthName, etc.FleetName} {
		have := collected(t, shipped(t, name))
		for _, a := range alerts(t) {
			if !answers(a.expr, recorded, have) {
				t.Errorf("%s cannot ring with %s", a.Alert, name)
			}
		}
		for line := range standard {
			if !have[line] {
				t.Errorf("%s lacks %s, which is in the default file", name, line)
			}
		}
	}
	var b strings.Builder
	b.WriteString("| alert | severity | for | lines | default |\n|---|---|---|---|---|\n")
	rings := 0
	for _, a := range alerts(t) {
		used := "–"
		if list := lines(a.expr, recorded); len(list) > 0 {
			used = "`" + strings.Join(list, "`, `") + "`"
		}
		wait := "–"
		if a.For > 0 {
			wait = a.For.String()
		}
		inDefault := "no"
		if answers(a.expr, recorded, standard) {
			inDefault = "yes"
			rings++
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s |\n", a.Alert, strings.ToLower(a.Alert),
			a.Labels["severity"], wait, used, inDefault)
	}
	if rings < 25 {
		t.Errorf("%d alerts can ring with the default counters", rings)
	}
	written(t, "runbooks.md", "needs", b.String())
}

// remembered reports whether the XIDs of a code are recent for an hour.
func remembered(t *testing.T, code string) (found bool) {
	t.Helper()
	parser.Inspect(recordings(t)["gpu:xids_scraped:recent"], func(n parser.Node, _ []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if ok && s.Name == catalog.XIDLastSeen {
			found = slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == "xid" && m.Matches(code) })
		}
		return nil
	})
	return found
}

// Every code fires the alert of its class and no other one, for the memory of its class but at most for an hour.
func TestXIDs(t *testing.T) {
	list := alerts(t)
	severity := map[string]string{}
	for _, a := range list {
		severity[a.Alert] = a.Labels["severity"]
	}
	for code := int64(1); code < 1000; code++ {
		x, word := catalog.XIDOf(code), strconv.FormatInt(code, 10)
		if got := xidAlert(t, list, word); got != x.Class.Alert() || severity[got] != string(x.Class.Severity()) {
			t.Errorf("XID %d, %v: fires %q, %q; want %q, %q", code, x.Class, got, severity[got], x.Class.Alert(), x.Class.Severity())
		}
		if longer := remembered(t, word); longer != (x.Class.Memory() >= time.Hour) {
			t.Errorf("XID %d, %v: recent for an hour: %t", code, x.Class, longer)
		}
		if catalog.XIDMessage(code) != "Unknown Error" && (x.First == "" || x.Source == "") {
			t.Errorf("XID %d has no action, or none with a source: %+v", code, x)
		}
	}
	for _, code := range catalog.AlertXIDs() {
		if catalog.XIDOf(code).Class == catalog.XIDApplication {
			t.Errorf("XID %d begins at zero, and a program causes it", code)
		}
	}
}
