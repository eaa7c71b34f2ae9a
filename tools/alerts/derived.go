package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
)

// derived returns the generated parts of all files.
func derived() ([]part, error) {
	group, err := xidGroup()
	if err != nil {
		return nil, err
	}
	return []part{
		{
			path.Join("deployment", "rules", "alerts-gpu.yml"),
			"  # Generated from tools/alerts/gpu-xids.yml and the table of XIDs: make generate\n",
			"  # End of the generated group\n", group,
		},
		{
			path.Join("docs", "runbooks.md"),
			"<!-- xids: written by make generate -->\n", "<!-- end of xids -->\n", "\n" + xidTable() + "\n",
		},
		{
			path.Join("docs", "verdict.md"),
			"<!-- rules: written by make generate -->\n", "<!-- end of rules -->\n", "\n" + verdictTable() + "\n",
		},
		{
			path.Join("docs", "verdict.md"),
			"<!-- findings: written by make generate -->\n", "<!-- end of findings -->\n",
			"\n" + findingsTable() + "\n",
		},
		{
			path.Join("gpuop", "explain", "words.txt"),
			"# --- XIDs, written by make generate\n", "# --- end of XIDs\n", xidWords(),
		},
	}, nil
}

//go:embed gpu-xids.yml
var xidTemplate string

// alert is what the template needs to write an alert on XIDs.
type alert struct {
	Name     string
	Severity catalog.AlertSeverity
	Matcher  string // label matcher for the XIDs
	Meanings string // annotation template that expands to the meaning of the alert's XID
}

// xidGroup returns the rule group about XIDs.
func xidGroup() (string, error) {
	t, err := template.New("gpu-xids.yml").Delims("[[", "]]").Option("missingkey=error").Parse(xidTemplate)
	if err != nil {
		return "", err
	}
	data := struct {
		Short  string // regular expression that matches the XIDs that stay active for less than an hour
		Alerts map[string]alert
	}{codes(forgotten), map[string]alert{}}
	for _, class := range catalog.XIDClasses() {
		if name := class.Alert; name != "" {
			data.Alerts[name] = alert{name, class.Severity, matcher(name), meanings(name)}
		}
	}
	var b strings.Builder
	err = t.Execute(&b, data)
	return b.String(), err
}

// forgotten reports whether XIDs of a class stay active for less than an hour.
func forgotten(c catalog.XIDClass) bool { return c.Memory < time.Hour }

// matcher returns the label matcher for the XIDs of an alert. The alert on unclassified XIDs matches every code that is
// in no other class, even one that the table lacks. XID 154, of the class XIDAction, is omitted: the template adds it
// with its own condition.
func matcher(alert string) string {
	if alert == catalog.XIDUnclassified.Alert {
		return `xid!~"` + codes(func(c catalog.XIDClass) bool { return c != catalog.XIDUnclassified }) + `"`
	}
	return `xid=~"` + codes(func(c catalog.XIDClass) bool { return c.Alert == alert && c != catalog.XIDAction }) + `"`
}

// meanings returns an annotation template that expands to the meaning of the alert's XID.
func meanings(alert string) string {
	var b strings.Builder
	branch := "if"
	for _, code := range xids(func(c catalog.XIDClass) bool { return c.Alert == alert }) {
		fmt.Fprintf(&b, `{{ %s eq $labels.xid "%d" }}%s`, branch, code,
			strings.ReplaceAll(catalog.XIDMessage(code), "'", "''"))
		branch = "else if"
	}
	return b.String() + "{{ end }}"
}

// codes returns a regular expression that matches the XIDs in the classes for which keep returns true.
func codes(keep func(catalog.XIDClass) bool) string {
	var words []string
	for _, code := range xids(keep) {
		words = append(words, strconv.FormatInt(code, 10))
	}
	return strings.Join(words, "|")
}

// xids returns the XIDs in the classes for which keep returns true.
func xids(keep func(catalog.XIDClass) bool) []int64 {
	return catalog.XIDsOf(slices.DeleteFunc(catalog.XIDClasses(), func(c catalog.XIDClass) bool { return !keep(c) })...)
}

// xidTable returns the table of XIDs in the runbooks. Below it is a list of reasons for XIDs whose class does not
// follow from their actions.
func xidTable() string {
	var b strings.Builder
	var reasons []string // without duplicates, in the order of the table
	codesOf := map[string][]string{}
	b.WriteString("| XID | meaning | class | severity | verdict | memory | first | then | alert | source |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	for _, code := range catalog.XIDsOf(catalog.XIDClasses()...) {
		x := catalog.XIDOf(code)
		name := "–"
		if a := x.Class.Alert; a != "" {
			name = "[" + a + "](#" + strings.ToLower(a) + ")"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", code, catalog.XIDMessage(code),
			x.Class.Name,
			cmp.Or(string(x.Class.Severity), "none"), verdict.OfXID(x.Class), span(x.Class.Memory), x.First,
			cmp.Or(x.Then, "–"), name, x.Source)
		if x.Why != "" {
			if codesOf[x.Why] == nil {
				reasons = append(reasons, x.Why)
			}
			codesOf[x.Why] = append(codesOf[x.Why], strconv.FormatInt(code, 10))
		}
	}
	b.WriteString("\nFor some XIDs, the class does not follow from the actions:\n\n")
	for _, why := range reasons {
		fmt.Fprintf(&b, "- %s: %s.\n", strings.Join(codesOf[why], ", "), why)
	}
	return b.String()
}

// xidWords returns the entries of gpuop's glossary about XIDs, each with the meaning of the XID and the actions for it.
func xidWords() string {
	var b strings.Builder
	for _, code := range catalog.XIDsOf(catalog.XIDClasses()...) {
		x := catalog.XIDOf(code)
		then := ""
		if x.Then != "" {
			then = " Then: " + x.Then + "."
		}
		fmt.Fprintf(&b, "xid | XID %d, Xid: %d | %s. First: %s.%s | NVIDIA driver, "+
			"in the kernel log | administrators, dcgm-exporter | %s\n",
			code, code, strings.TrimSuffix(catalog.XIDMessage(code), "."), x.First, then,
			"https://docs.nvidia.com/deploy/xid-errors")
	}
	return b.String()
}
