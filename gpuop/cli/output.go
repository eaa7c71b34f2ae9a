package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

var formats = []string{"text", "json", "sarif"}

// verboseFlag adds -v to a command whose answer is a tree.
func (e *env) verboseFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&e.verbose, "verbose", "v", false, "show what is as intended, too")
}

// check refuses unknown words in the common options.
func (e *env) check() error {
	if !slices.Contains(formats, e.format) {
		return fmt.Errorf("%w: unknown output format %q, want %s", errUsage, e.format, strings.Join(formats, ", "))
	}
	if e.failOn != "" {
		if _, err := report.AtSeverity(e.failOn); err != nil {
			return fmt.Errorf("%w: --fail-on: %w", errUsage, err)
		}
	}
	return nil
}

// An answer is the result of a command.
type answer struct {
	// Text writes the result for a human; nil when the findings are the whole answer.
	Text func(w io.Writer, style report.Style) error
	// Document says that Text writes a file, such as a values file, for another program to read: it
	// is written alone and without color, and the findings go to the error stream.
	Document bool
	// Data is the result for -o json; its json tags name the fields. Without it the
	// findings are written.
	Data any
	// Report has the findings. Of a cluster or a node it stands for Text and Data.
	Report report.Report
	// Quiet leaves out the line that counts the findings.
	Quiet bool
	// Fail makes the exit code 1 whatever the findings are: something of the input is missing from
	// the result.
	Fail bool
}

// answer writes a in the format and to the place that the flags name, and returns
// errFindings when a finding is as severe as --fail-on.
//
// It is the only place that writes findings, so it masks secrets for all commands.
func (e *env) answer(a answer) error {
	a.Report.Sort()
	a.Report.Mask(e.secrets)
	var out bytes.Buffer
	if err := e.render(&out, &a); err != nil {
		return err
	}
	if e.outPath == "" {
		if _, err := e.Out.Write(out.Bytes()); err != nil {
			return err
		}
	} else if err := e.notAnInput(); err != nil {
		return err
	} else if err := os.WriteFile(e.outPath, out.Bytes(), 0o600); err != nil {
		return err
	}
	if a.Fail && e.failOn != "never" || e.fails(&a.Report) {
		return errFindings
	}
	return nil
}

// notAnInput refuses an --out that is one of the files that were read, by whatever name.
func (e *env) notAnInput() error {
	out, err := os.Stat(e.outPath)
	if err != nil {
		return nil // a new file
	}
	for _, path := range append(slices.Clone(e.inputs), e.charts...) {
		if in, err := os.Stat(path); err == nil && os.SameFile(in, out) {
			return fmt.Errorf("%w: --out %s is the input %s: name another file", errUsage, e.outPath, path)
		}
	}
	return nil
}

func (e *env) render(w io.Writer, a *answer) error {
	switch e.format {
	case "json":
		return report.WriteJSON(w, a.data())
	case "sarif":
		return a.Report.WriteSARIF(w, "gpuop", e.version)
	}
	return e.renderText(w, a)
}

func (e *env) renderText(w io.Writer, a *answer) error {
	style := report.Style{Color: e.Terminal && e.outPath == ""}
	notes := w
	found := len(a.Report.Rows) > 0
	switch {
	case a.Document:
		if err := a.Text(w, report.Style{}); err != nil {
			return err
		}
		notes = e.Err
	case a.Text != nil:
		if err := a.Text(w, style); err != nil {
			return err
		}
		if found {
			fmt.Fprintln(w)
		}
	}
	if err := a.Report.WriteText(notes, style, e.verbose); err != nil {
		return err
	}
	if a.Quiet || a.Text != nil && !found {
		return nil
	}
	if found {
		fmt.Fprintln(notes)
	}
	_, err := fmt.Fprintln(notes, a.Report.Summary())
	return err
}

// data is the answer for machines: the result beside the findings, or the findings alone.
func (a *answer) data() any {
	if a.Data == nil {
		return a.Report
	}
	return struct {
		Result any           `json:"result"`
		Report report.Report `json:"report"`
	}{a.Data, a.Report}
}

// table writes aligned columns, two spaces apart.
func table(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return tw.Flush()
}
