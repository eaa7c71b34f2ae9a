package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/explain"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

var errUnknownWord = errors.New("unknown word")

func newExplainCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "explain WORD...",
		Short: "Say what a label, state, resource, event or component is",
		Long: `explain says what a word means, who writes it, who reads it and where it is documented: labels and annotations of
nodes, states, keys of the configuration files, resource names, events and messages, components, environment variables,
MIG profiles and GPU models. Keys of the chart are explained by gpuop values explain.`,
		Example: `  gpuop explain nvidia.com/gpu.deploy.driver
  gpuop explain paused-for-mig-change
  gpuop explain UnexpectedAdmissionError
  gpuop explain 3g.20gb`,
		RunE: func(cmd *cobra.Command, args []string) error {
			word := strings.Join(args, " ")
			if word == "" {
				return fmt.Errorf("%w: say which word (see %s --help)", errUsage, cmd.CommandPath())
			}
			entries := explain.Find(word)
			if len(entries) == 0 {
				return unknownWord(word)
			}
			return e.answer(answer{Data: entries, Text: func(w io.Writer, style report.Style) error {
				return writeEntries(w, style, entries)
			}})
		},
	}
}

func unknownWord(word string) error {
	table := chart.Load()
	switch v := table.Judge(table.Latest(), chart.ParsePath(word)); {
	case v.Status != chart.Unknown && v.Status != chart.Misspelt && v.Status != chart.TooDeep:
		return fmt.Errorf("%w %q: it is a key of the chart: gpuop values explain %s", errUnknownWord, word, word)
	case strings.Contains(word, ".") && v.Nearest != nil:
		return fmt.Errorf("%w %q: did you mean the key of the chart %s?", errUnknownWord, word, v.Nearest)
	}
	hint := ""
	switch near := explain.Nearest(word); len(near) {
	case 0:
	case 1:
		hint = ": did you mean " + near[0] + "?"
	default:
		hint = ": did you mean one of: " + strings.Join(near, ", ") + "?"
	}
	return fmt.Errorf("%w %q%s", errUnknownWord, word, hint)
}

func writeEntries(w io.Writer, style report.Style, entries []explain.Entry) error {
	for i, entry := range entries {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s  %s\n", style.Bold(entry.Words[0]), style.Dim(entry.Kind))
		wrap(w, "  ", "  ", entry.Meaning)
		for _, line := range [][2]string{
			{"written by", entry.Writer}, {"read by", entry.Reader}, {"documented", entry.Source},
			{"also", strings.Join(entry.Words[1:], ", ")},
		} {
			if line[1] != "" {
				wrap(w, "  "+style.Dim(fmt.Sprintf("%-12s", line[0])), "              ", line[1])
			}
		}
	}
	return nil
}

// wrap folds text between words, behind the first and the other lines' beginnings.
func wrap(w io.Writer, first, other, text string) {
	for _, line := range report.Fold(text, 108-utf8.RuneCountInString(other)) {
		fmt.Fprintln(w, first+line)
		first = other
	}
}
