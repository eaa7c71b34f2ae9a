package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// answer is the result of a command.
type answer struct {
	// Text writes the result for people. It is nil if the findings are the whole result.
	Text func(w io.Writer, style check.Style)
	// Document is the result if it is a file for another program, such as values. The findings are then written to
	// standard error. It is nil if the result is not a document.
	Document []byte
	// KeepSecrets leaves the secrets in the document, because users apply the document as it is.
	KeepSecrets bool
	// Data is the result for -o json.
	Data any
	// Report has the findings. They are written after Text.
	Report check.Report
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
	out, err := e.render(&a)
	if err != nil {
		return err
	}
	if e.outPath == "" {
		_, err = e.Out.Write(out)
	} else if err = e.notAnInput(); err == nil {
		err = os.WriteFile(e.outPath, out, 0o600)
	}
	least := check.Error
	if a.Report.Judged {
		least = check.Waiting
	}
	if err == nil && (a.Fail && e.failOn <= check.Error || a.Report.AtLeast(cmp.Or(e.failOn, least))) {
		return errFindings
	}
	return err
}

// notAnInput returns an error if --out names one of the input files.
func (e *env) notAnInput() error {
	out, err := os.Stat(e.outPath)
	if err != nil {
		return nil // a file that does not exist is not an input
	}
	for _, path := range e.inputs {
		if in, err := os.Stat(path); err == nil && os.SameFile(in, out) {
			return fmt.Errorf("--out %s would overwrite the input %s: choose another file", e.outPath, path)
		}
	}
	return nil
}

// render returns what is written to standard output or --out, with the secrets masked. With KeepSecrets, the document
// keeps them, also as a string in JSON.
func (e *env) render(a *answer) ([]byte, error) {
	var out bytes.Buffer
	var err error
	switch e.format {
	case "json":
		a.Report.Result = a.Data
		err = check.WriteJSON(&out, a.Report)
	case "sarif":
		err = a.Report.WriteSARIF(&out, "gpuop", e.version)
	default:
		if err := e.renderText(&out, a); err != nil || a.KeepSecrets {
			return out.Bytes(), err
		}
		return []byte(e.secrets.Replace(out.String())), nil
	}
	keep := ""
	if a.KeepSecrets {
		keep = string(a.Document)
	}
	return e.secrets.ReplaceJSON(out.Bytes(), keep), err
}

func (e *env) renderText(w io.Writer, a *answer) error {
	style, found := check.Style{Color: e.Terminal && e.outPath == ""}, len(a.Report.Findings) > 0
	switch {
	case a.Document != nil:
		if _, err := w.Write(a.Document); err != nil || !found {
			return err
		}
		w = e.Err
	case a.Text != nil:
		if a.Text(w, style); !found {
			return nil
		}
		fmt.Fprintln(w)
	}
	if err := a.Report.WriteText(w, style, e.verbose); err != nil {
		return err
	}
	if found {
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintln(w, a.Report.Summary())
	return err
}

// table writes rows with aligned columns.
func table(w io.Writer, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	_ = tw.Flush() // errors of w: all callers write to a buffer
}

// tally lists the words in their order, with a number before each word that occurs several times: "2 × pod, values".
func tally(words []string) string {
	number := map[string]int{}
	for _, word := range words {
		number[word]++
	}
	var out []string
	for _, word := range words {
		switch n := number[word]; {
		case n > 1:
			out = append(out, fmt.Sprintf("%d × %s", n, word))
		case n == 1:
			out = append(out, word)
		}
		number[word] = 0
	}
	return strings.Join(out, ", ")
}
