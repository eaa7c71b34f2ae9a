package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/explain"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

var errUnknownWord = errors.New("unknown word")

func newExplainCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "explain WORD...",
		Short: "Say what a label, state, key, resource, event or component is",
		Long: `explain says what a word means, who writes it, who reads it and where it is documented: labels and annotations of
nodes, states, keys of the chart and of the configuration files, resource names, events and messages, components,
environment variables, MIG profiles and GPU models.

  gpuop explain compare   compares streams, MPS, time-slicing, MIG and vGPU, and marks where sources disagree
  gpuop explain list      lists every word`,
		Example: `  gpuop explain nvidia.com/gpu.deploy.driver
  gpuop explain paused-for-mig-change
  gpuop explain UnexpectedAdmissionError
  gpuop explain driver.usePrecompiled
  gpuop explain 3g.20gb`,
		RunE: func(cmd *cobra.Command, args []string) error {
			word := strings.Join(args, " ")
			switch word {
			case "":
				return fmt.Errorf("%w: say which word, or compare, or list (see %s --help)", errUsage, cmd.CommandPath())
			case "compare", "comparison":
				return e.answer(comparison())
			case "list":
				return e.answer(glossary())
			}
			entries := explain.Find(word)
			if key, ok := chartKey(word); ok {
				entries = append([]explain.Entry{key}, entries...)
			}
			if len(entries) == 0 {
				return unknownWord(word)
			}
			return e.answer(answer{Data: entries, Text: func(w io.Writer, style finding.Style) error {
				return writeEntries(w, style, entries)
			}})
		},
	}
}

func unknownWord(word string) error {
	near := explain.Nearest(word)
	table := chart.Load()
	if v := table.Judge(table.Latest(), chart.ParsePath(word)); strings.Contains(word, ".") && v.Nearest != nil {
		near = slices.Insert(near, 0, v.Nearest.String())
	}
	switch len(near) {
	case 0:
		return fmt.Errorf("%w %q (gpuop explain list shows all)", errUnknownWord, word)
	case 1:
		return fmt.Errorf("%w %q: did you mean %s?", errUnknownWord, word, near[0])
	}
	return fmt.Errorf("%w %q: did you mean one of: %s?", errUnknownWord, word, strings.Join(near, ", "))
}

// chartKey explains a key of the operator's chart, or a group of keys.
func chartKey(word string) (explain.Entry, bool) {
	table := chart.Load()
	path := chart.ParsePath(word)
	v := table.Judge(table.Latest(), path)
	if v.Status == chart.Unknown || v.Status == chart.Misspelt || v.Status == chart.TooDeep {
		return explain.Entry{}, false
	}
	about, ok := table.About(path)
	if !ok {
		return explain.Entry{}, false
	}
	entry := explain.Entry{
		Kind: "chart key", Words: []string{word}, Meaning: about.Text, Writer: "you, in values.yaml or by --set", Reader: about.Reader,
		Source: "gpu-operator deployments/gpu-operator/values.yaml",
	}
	if k, known := table.Key(path); v.Key == nil && known {
		v.Key = k
	}
	if v.Key == nil {
		entry.Kind = "chart keys"
	} else {
		lifetime := "in the chart since " + v.Key.Since().String()
		if v.Key.Until() != (chart.Version{}) {
			lifetime = fmt.Sprintf("in the chart from %s to %s, gone since", v.Key.Since(), v.Key.Until())
		}
		entry.Details = []string{lifetime, "defaults by version: gpuop values explain " + word}
	}
	return entry, true
}

func writeEntries(w io.Writer, style finding.Style, entries []explain.Entry) error {
	for i, entry := range entries {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s  %s\n", style.Bold(entry.Words[0]), style.Dim(entry.Kind))
		wrap(w, "  ", "  ", entry.Meaning)
		for _, d := range entry.Details {
			wrap(w, "  - ", "    ", d)
		}
		for _, line := range [][2]string{{"written by", entry.Writer}, {"read by", entry.Reader}, {"documented", entry.Source}} {
			if line[1] != "" {
				wrap(w, "  "+style.Dim(fmt.Sprintf("%-12s", line[0])), "              ", line[1])
			}
		}
		if len(entry.Words) > 1 {
			wrap(w, "  "+style.Dim(fmt.Sprintf("%-12s", "also")), "              ", strings.Join(entry.Words[1:], ", "))
		}
	}
	return nil
}

// wrap folds text between words to the width of a wide terminal.
func wrap(w io.Writer, first, other, text string) {
	const width = 108
	line, length := first, utf8.RuneCountInString(other)
	begin := length
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if length > begin && length+1+n > width {
			fmt.Fprintln(w, line)
			line, length = other, begin
		}
		if length > begin {
			line, length = line+" ", length+1
		}
		line, length = line+word, length+n
	}
	fmt.Fprintln(w, line)
}

func glossary() answer {
	entries := explain.Glossary()
	return answer{Data: entries, Text: func(w io.Writer, style finding.Style) error {
		var kinds []string
		words := map[string][]string{}
		for _, e := range entries {
			if words[e.Kind] == nil {
				kinds = append(kinds, e.Kind)
			}
			words[e.Kind] = append(words[e.Kind], e.Words...)
		}
		for _, kind := range kinds {
			wrap(w, style.Bold(fmt.Sprintf("%-15s", kind)), strings.Repeat(" ", 15), strings.Join(words[kind], ", "))
		}
		_, err := fmt.Fprintln(w, style.Dim("\nand every MIG profile, GPU model and key of the operator's chart"))
		return err
	}}
}

type compareResult struct {
	Ways []string      `json:"ways"`
	Rows []explain.Row `json:"rows"`
}

func comparison() answer {
	rows := explain.Compare()
	return answer{Data: compareResult{explain.Ways(), rows}, Text: func(w io.Writer, style finding.Style) error {
		return writeComparison(w, style, rows)
	}}
}

// writeComparison draws the table with folded cells; a cell that other sources contradict carries
// the number of the note below.
func writeComparison(w io.Writer, style finding.Style, rows []explain.Row) error {
	widths := [6]int{19, 14, 20, 20, 16, 16}
	var notes []string
	line := func(cells [6]string, bold bool) {
		folded := [6][]string{}
		height := 0
		for i, c := range cells {
			folded[i] = foldCell(c, widths[i])
			height = max(height, len(folded[i]))
		}
		for row := range height {
			text := ""
			for i := range cells {
				part := ""
				if row < len(folded[i]) {
					part = folded[i][row]
				}
				text += part + strings.Repeat(" ", max(1, widths[i]-utf8.RuneCountInString(part)+1))
			}
			text = strings.TrimRight(text, " ")
			if bold {
				text = style.Bold(text)
			}
			fmt.Fprintln(w, text)
		}
	}
	ways := explain.Ways()
	line([6]string{"", ways[0], ways[1], ways[2], ways[3], ways[4]}, true)
	for _, r := range rows {
		cells := [6]string{r.Property, r.Cells[0], r.Cells[1], r.Cells[2], r.Cells[3], r.Cells[4]}
		for _, d := range r.Disputed {
			at := 1 + slices.Index(ways, d.Way)
			cells[at] += fmt.Sprintf(" [%d]", len(notes)+1)
			notes = append(notes, fmt.Sprintf("%s, %s: table %q, but %s (%s). So: %s.", r.Property, d.Way, r.Cells[at-1], d.Says, d.Source, d.Verdict))
		}
		fmt.Fprintln(w)
		line(cells, false)
	}
	fmt.Fprintf(w, "\n%s\n", style.Bold("Where sources disagree"))
	for i, n := range notes {
		wrap(w, fmt.Sprintf("%4s ", fmt.Sprintf("[%d]", i+1)), "     ", n)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", style.Dim("Table: NVIDIA technical blog, \"Improving GPU Utilization in Kubernetes\" (2022); the row \"In Kubernetes\" is gpuop's."))
	return err
}

func foldCell(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
