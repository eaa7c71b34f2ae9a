package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/explain"
)

func newExplainCommand(e *env) *cobra.Command {
	return &cobra.Command{Use: "explain WORD...", Args: cobra.MinimumNArgs(1),
		Short: "Explain a label, state, resource, event, chart key or check",
		RunE: func(_ *cobra.Command, args []string) error {
			entries, err := explain.Lookup(e.table, strings.Join(args, " "))
			if err != nil && len(args) > 1 { // several arguments may be several words to explain, not a phrase
				for _, word := range args {
					found, unknown := explain.Lookup(e.table, word)
					if unknown != nil {
						return err
					}
					entries = append(entries, found...)
				}
				err = nil
			}
			if err != nil {
				return err
			}
			return e.answer(answer{Data: entries, Text: func(w io.Writer, style check.Style) {
				writeEntries(w, style, entries)
			}})
		},
	}
}

// writeEntries writes entries. If consecutive entries have the same meaning, it is written only once.
func writeEntries(w io.Writer, style check.Style, entries []explain.Entry) {
	const indent = "              "
	for i, entry := range entries {
		same := i > 0 && entry.Meaning == entries[i-1].Meaning
		if i > 0 && !same {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s  %s\n", style.Bold(entry.Words[0]), style.Dim(entry.Kind))
		if same {
			entry.Reader = ""
		} else {
			fmt.Fprintln(w, "  "+strings.Join(check.Fold(entry.Meaning, 106), "\n  "))
		}
		for _, line := range [][2]string{
			{"written by", entry.Writer}, {"read by", entry.Reader}, {"documented", entry.Source},
			{"also", strings.Join(entry.Words[1:], ", ")},
			{"since", entry.Since}, {"default", strings.Join(entry.Defaults, ", ")}, {"instead", entry.Instead},
		} {
			if line[1] != "" {
				text := strings.Join(check.Fold(line[1], 108-len(indent)), "\n"+indent)
				fmt.Fprintf(w, "  %s%s\n", style.Dim(fmt.Sprintf("%-12s", line[0])), text)
			}
		}
	}
}
