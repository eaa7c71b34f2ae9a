package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/explain"
)

func newExplainCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "explain WORD...",
		Short: "Explain a label, state, resource, event, chart key or check",
		Long: `explain prints what a word means, what writes and reads it, and where it is documented. It knows node
labels and annotations, states, keys of the configuration files, resource names, events, error messages, components,
environment variables, MIG profiles, GPU models and the IDs of gpuop's checks. For a key of the chart it also prints
the releases that have it, and its default. .Values.driver lists the keys below driver.`,
		Example: `  gpuop explain nvidia.com/gpu.deploy.driver
  gpuop explain paused-for-mig-change
  gpuop explain UnexpectedAdmissionError
  gpuop explain cdi.enabled
  gpuop explain 3g.20gb`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			entries, err := explain.Lookup(e.table, strings.Join(args, " "))
			if err != nil && len(args) > 1 { // several arguments may be several words to explain, not a phrase
				var found []explain.Entry
				for _, word := range args {
					each, unknown := explain.Lookup(e.table, word)
					if unknown != nil {
						return err
					}
					found = append(found, each...)
				}
				entries, err = found, nil
			}
			if err != nil {
				return err
			}
			return e.answer(answer{Data: entries, Text: func(w io.Writer, style check.Style) error {
				writeEntries(w, style, entries)
				return nil
			}})
		},
	}
}

// writeEntries writes entries. If consecutive entries have the same meaning, it is written only once.
func writeEntries(w io.Writer, style check.Style, entries []explain.Entry) {
	for i, entry := range entries {
		same := i > 0 && entry.Meaning == entries[i-1].Meaning
		if i > 0 && !same {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s  %s\n", style.Bold(entry.Words[0]), style.Dim(entry.Kind))
		if same {
			entry.Reader = ""
		} else {
			wrap(w, "  ", "  ", entry.Meaning)
		}
		for _, line := range [][2]string{
			{"written by", entry.Writer}, {"read by", entry.Reader}, {"documented", entry.Source},
			{"also", strings.Join(entry.Words[1:], ", ")},
			{"since", entry.Since}, {"default", strings.Join(entry.Defaults, ", ")}, {"instead", entry.Instead},
		} {
			if line[1] != "" {
				wrap(w, "  "+style.Dim(fmt.Sprintf("%-12s", line[0])), "              ", line[1])
			}
		}
	}
}

// wrap writes text, wrapped at word boundaries. first is the prefix of the first line, and other that of the later
// lines.
func wrap(w io.Writer, first, other, text string) {
	for _, line := range check.Fold(text, 108-utf8.RuneCountInString(other)) {
		fmt.Fprintln(w, first+line)
		first = other
	}
}
