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

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// formats returns the output formats of a command. Only lint has SARIF.
func formats(command string) []string {
	if command == "lint" {
		return []string{"text", "json", "sarif"}
	}
	return []string{"text", "json"}
}

// verboseFlag adds -v to a command that prints a report.
func (e *env) verboseFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&e.verbose, "verbose", "v", false, "also show checks that pass")
}

// check validates the common flags of a command, and parses --ignore into e.ignored.
func (e *env) check(command string) error {
	if known := formats(command); !slices.Contains(known, e.format) {
		return fmt.Errorf("%w: unknown output format %q, expected %s", errUsage, e.format, strings.Join(known, ", "))
	}
	for _, text := range e.ignore {
		i, err := check.ParseIgnore(text)
		if err != nil {
			return fmt.Errorf("%w: --ignore: %w", errUsage, err)
		}
		e.ignored = append(e.ignored, i)
	}
	if e.failOn != "" {
		if _, err := check.AtSeverity(e.failOn); err != nil {
			return fmt.Errorf("%w: --fail-on: %w", errUsage, err)
		}
	}
	return nil
}

// answer is the result of a command.
type answer struct {
	// Text writes the result for people. It is nil if the findings are the whole result.
	Text func(w io.Writer, style check.Style) error
	// Document means that Text writes a file for another program, such as values. The file has no colors, and the
	// findings are written to standard error.
	Document bool
	// KeepSecrets leaves the secrets in the document that Text writes, because users apply the document as it is.
	KeepSecrets bool
	// Data is the result for -o json.
	Data any
	// Report has the findings. They are written after Text.
	Report check.Report
	// Quiet omits the summary line.
	Quiet bool
	// Fail makes the exit code 1 even without findings, unless --fail-on is never.
	Fail bool
}

// answer writes the result in the selected format. It returns errFindings if a finding reaches --fail-on or if Fail
// makes the exit code 1.
//
// Secrets are masked here. All other output goes to e.Err, which masks them too.
func (e *env) answer(a answer) error {
	a.Report.Ignore(e.ignored)
	a.Report.Sort()
	a.Report.Mask(e.secrets)
	var out bytes.Buffer
	if err := e.render(&out, &a); err != nil {
		return err
	}
	if err := e.maskRendered(&out, &a); err != nil {
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

// notAnInput returns an error if --out names one of the input files.
func (e *env) notAnInput() error {
	out, err := os.Stat(e.outPath)
	if err != nil {
		return nil // a file that does not exist is not an input
	}
	for _, path := range append(slices.Clone(e.inputs), e.charts...) {
		if in, err := os.Stat(path); err == nil && os.SameFile(in, out) {
			return fmt.Errorf("%w: --out %s would overwrite the input %s: choose another file",
				errUsage, e.outPath, path)
		}
	}
	return nil
}

func (e *env) render(w io.Writer, a *answer) error {
	switch e.format {
	case "json":
		a.Report.Result = a.Data
		return check.WriteJSON(w, a.Report)
	case "sarif":
		return a.Report.WriteSARIF(w, "gpuop", e.version)
	}
	return e.renderText(w, a)
}

func (e *env) renderText(w io.Writer, a *answer) error {
	style := check.Style{Color: e.Terminal && e.outPath == ""}
	notes := w
	found := len(a.Report.Findings) > 0
	switch {
	case a.Document:
		if err := a.Text(w, check.Style{}); err != nil {
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

// table writes rows with aligned columns.
func table(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return tw.Flush()
}
