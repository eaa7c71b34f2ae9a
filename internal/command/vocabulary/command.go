package vocabulary

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

const name = "vocabulary"

// Usage is the text of "vocabulary --help".
const Usage = `Usage: dcgm-exporter vocabulary diff [--to current|classic] [--hostname-label LABEL] [--format text|json] [--write] FILE...

Reads Grafana dashboards (JSON), Prometheus rule files and scrape configurations,
and Kubernetes manifests (YAML or JSON): those of the Prometheus operator, and
dashboards and rules that lie in ConfigMaps, lists or the output of helm template.
A folder stands for the .json, .yaml, .yml and .rules files below it. Lists every
metric and label in them that is called otherwise, or is in another unit, under the other
vocabulary, with the rewritten expression. The rewritten one has the unit of the
old one, so that panels and thresholds stay right. What cannot be rewritten is
listed to be looked at by hand. No file is changed without --write; - reads the
standard input.

  --to WORD              the vocabulary to write for; without it, current for a
                         file with classic names and classic for one with
                         current names alone
  --hostname-label LABEL the exporter's --hostname-label (hostname, Hostname,
                         both; default hostname)
  --format WORD          text or json (default text)
  --write                put the rewritten expressions into the files, and leave
                         every other byte as it is

Exit code: 0 nothing to change, or all of it written; 1 something to change; 2 a
file that cannot be read or written, or a bad flag. What a folder holds beside such files is left out.
`

// A Command is the subcommand.
type Command struct {
	command.Process
	// List returns the files of a folder, as Files does; nil where none are read.
	List func(name string) ([]string, error)
	// WriteFile replaces a file's content, as ReplaceFile does. Required for --write.
	WriteFile func(name string, content []byte) error
}

// settings are the command's flags and operands.
type settings struct {
	to     string
	host   string
	format string
	write  bool
	files  []string
}

// Run compares and returns the exit code.
func (c Command) Run() int {
	if slices.Contains(c.Args, "-h") || slices.Contains(c.Args, "--help") {
		fmt.Fprint(c.Out, Usage)
		return command.OK
	}
	s, err := parseSettings(c.Args)
	if err != nil {
		return c.Fail(name, err)
	}
	findings := []Finding{}
	read, unreadable := 0, false
	for _, operand := range s.files {
		files, folder := []string{operand}, false
		if c.List != nil && operand != "-" {
			list, err := c.List(operand)
			if err != nil {
				c.Fail(name, err)
				unreadable = true
			}
			if list != nil {
				files, folder = list, true
			}
		}
		before := read
		for _, file := range files {
			found, err := c.rewriteFile(file, s)
			findings = append(findings, found...)
			if folder && isOther(err) {
				continue
			}
			read++
			if err != nil {
				c.Fail(name, err)
				unreadable = true
			}
		}
		if folder && read == before {
			c.Fail(name, fmt.Errorf("%s: %w, in %d %s", operand, errOtherKind, len(files), plural(len(files), "file")))
			unreadable = true
		}
	}
	if err := s.report(c.Out, findings, read); err != nil {
		return c.Fail(name, err)
	}
	switch {
	case unreadable:
		return command.Unable
	case slices.ContainsFunc(findings, func(f Finding) bool { return !f.Written || len(f.ByHand) > 0 }):
		return command.Faulty
	default:
		return command.OK
	}
}

// isOther reports whether a file of a folder is none of those that are meant.
func isOther(err error) bool {
	var unread *fileError
	return errors.Is(err, errOtherKind) || errors.As(err, &unread) && unread.foreign
}

func (c Command) rewriteFile(file string, s settings) ([]Finding, error) {
	var data []byte
	var err error
	shown := file
	if file == "-" {
		shown = "standard input"
		data, err = io.ReadAll(c.In)
	} else {
		data, err = c.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	to, ok := catalog.ParseVocabulary(s.to)
	if !ok {
		to = direction(data)
	}
	findings, rewritten, err := rewriteDocument(shown, data, newRewriter(to, s.host), s.write)
	if rewritten == nil {
		return findings, err
	}
	if wrong := c.WriteFile(file, rewritten); wrong != nil {
		for i := range findings {
			findings[i].Written = false
		}
		return findings, errors.Join(err, wrong)
	}
	return findings, err
}

// parseSettings reads the arguments. Flags and files come in any order.
func parseSettings(args []string) (settings, error) {
	s := settings{host: "hostname", format: "text"}
	if len(args) == 0 || args[0] != "diff" {
		return s, errors.New("expected: vocabulary diff FILE, one or more")
	}
	files, _, err := config.Scan(args[1:], []config.Flag{
		config.Word("to", &s.to, "current", "classic"),
		config.Word("hostname-label", &s.host, "hostname", "Hostname", "both"),
		config.Word("format", &s.format, "text", "json"),
		config.Switch("write", &s.write),
	})
	if err != nil {
		return s, err
	}
	s.files = files
	if len(s.files) == 0 {
		return s, errors.New("diff: expected a file")
	}
	if s.write && slices.Contains(s.files, "-") {
		return s, errors.New("diff --write: expected files to write to, found - for the standard input")
	}
	return s, nil
}

func (s settings) report(out io.Writer, findings []Finding, files int) error {
	if s.format == "json" {
		e := json.NewEncoder(out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(findings)
	}
	return s.printText(out, findings, files)
}

// printText prints findings for people: the place, what changes, and the lines before and after.
func (s settings) printText(out io.Writer, findings []Finding, files int) error {
	var b strings.Builder
	file := ""
	rewritten, written, byHand := 0, 0, 0
	for i := range findings {
		f := &findings[i]
		if f.File != file {
			file = f.File
			fmt.Fprintf(&b, "%s, to %s:\n", file, f.To)
		}
		place := f.Place
		if place != "" {
			place += ": "
		}
		fmt.Fprintf(&b, "  line %d: %s%s\n", f.Line, place, f.What)
		for _, c := range f.Changes {
			fmt.Fprintf(&b, "    %s %s is %s", c.Kind, c.Old, c.New)
			if c.OldUnit != c.NewUnit {
				fmt.Fprintf(&b, ", in %s instead of %s", c.NewUnit, c.OldUnit)
			}
			b.WriteByte('\n')
		}
		if f.New != "" {
			rewritten++
			printLines(&b, "    - ", f.Old)
			printLines(&b, "    + ", f.New)
			switch {
			case f.Written:
				written++
			case s.write:
				byHand++
				b.WriteString("    not written: change it by hand\n")
			}
		} else {
			printLines(&b, "      ", f.Old)
		}
		for _, what := range f.ByHand {
			byHand++
			fmt.Fprintf(&b, "    look at this by hand: %s\n", what)
		}
	}
	if s.write {
		fmt.Fprintf(&b, "%d of %d written, %d to look at by hand, in %d %s\n", written, rewritten, byHand, files, plural(files, "file"))
	} else {
		fmt.Fprintf(&b, "%d to change, %d to look at by hand, in %d %s\n", rewritten, byHand, files, plural(files, "file"))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func printLines(b *strings.Builder, mark, text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		b.WriteString(mark + strings.TrimRight(line, "\n") + "\n")
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
