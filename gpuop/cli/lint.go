package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
)

func newLintCommand(e *env) *cobra.Command {
	o := &lintRun{env: e, names: map[string][]string{}, folders: map[string]string{}}
	cmd := &cobra.Command{Use: "lint [FILE…] [--command 'helm install …']", RunE: o.run,
		Short: "Check values, commands and manifests before they are applied"}
	flags := cmd.Flags()
	flags.StringVar(&o.options.Version, "version", "",
		"chart `release` to check against (default: the command's --version, else the newest)")
	flags.StringVarP(&o.options.Command, "command", "c", "", "check this shell `text`; - for standard input")
	flags.BoolVar(&o.options.Fix, "fix", false, "print the corrected command, and findings to standard error")
	flags.BoolVar(&o.showSecrets, "show-secrets", false, "do not mask passwords and tokens in the corrected command")
	return cmd
}

// lintRun is one call of lint: its flags, and what it read.
type lintRun struct {
	*env
	options     lint.Options
	showSecrets bool
	// names lists the names of the inputs that an argument stands for. --command has the argument lint.CommandName.
	names map[string][]string
	// folders has the folder below which an input may refer to files, if that is not the folder of the input.
	folders map[string]string
	// unread has the findings about inputs that could not be read.
	unread []check.Finding
}

func (o *lintRun) run(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && o.options.Command == "" {
		return fmt.Errorf("nothing to lint: specify a file or --command (see %s --help)", cmd.CommandPath())
	}
	if o.options.Command == "-" {
		text, err := o.read("-")
		if err != nil {
			return err
		}
		o.options.Command = string(text)
	}
	inputs := args
	var scripts []string
	if o.options.Command != "" {
		scripts = []string{lint.CommandName}
		inputs, o.names[lint.CommandName] = append(scripts, args...), scripts
	}
	for _, arg := range args {
		if err := o.open(arg); err != nil {
			return err
		}
	}
	for _, f := range o.options.Files {
		if f.Script {
			scripts = append(scripts, f.Name)
		}
	}
	switch {
	case o.options.Fix && len(scripts) == 0:
		return errors.New("--fix needs --command or a script")
	case o.options.Fix && len(scripts) > 1:
		return fmt.Errorf("--fix corrects one script at a time: run it for %s, then for each of the others", scripts[0])
	case len(scripts) == 0:
		o.options.Version = cmp.Or(o.options.Version, o.chartVersion)
	}
	o.options.Table, o.options.Read = o.table, o.fileReader(o.folders)
	result, err := lint.Lint(o.options)
	if err != nil {
		return err
	}
	for _, secret := range result.Secrets {
		o.secrets.Add(secret)
	}
	result.Report.Add(o.unread...)
	if o.options.Fix {
		err = o.writeFixed(result)
	} else {
		err = o.answer(answer{Report: result.Report, Text: kinds(result), Data: lintData{Kinds: result.Kinds}})
	}
	if err != nil && !errors.Is(err, errFindings) {
		return err
	}
	return cmp.Or(o.reportSkipped(result, inputs), err)
}

// open reads the file or folder that an argument names.
func (o *lintRun) open(arg string) error {
	paths := []string{arg}
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		if paths, err = lintableIn(arg); err != nil {
			return err
		}
	}
	for _, path := range paths {
		name, found, isScript := inputName(path), path != arg, extension(path) == ".sh"
		o.names[arg] = append(o.names[arg], name)
		if found {
			o.folders[name] = arg
		}
		data, err := o.load(path) // lint.Lint returns the secrets of the files that it checks
		unread := check.Finding{Check: notRead, Severity: check.Error, File: name,
			Reason: fmt.Sprint("not checked: ", err)}
		if found {
			unread.Severity = check.Note
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && !found:
			return err
		case errors.Is(err, errInputsTooLarge) && found:
			unread.Reason = fmt.Sprintf("this file and those after it are not checked: %s", err)
			unread.Fix = "check the subfolders one at a time"
			o.unread = append(o.unread, unread)
			return nil
		case err != nil:
			o.unread = append(o.unread, unread)
		default:
			o.options.Files = append(o.options.Files, lint.Input{Name: name, Data: data, Script: isScript,
				Found: found && !(isScript && o.options.Fix)})
		}
	}
	return nil
}

var lintable = []string{".yaml", ".yml", ".json", ".sh", ".tf"}

// templates are the extensions that Helmfile, Terraform and Ansible append to the names of templates.
var templates = []string{".gotmpl", ".tpl", ".tftpl", ".j2"}

// extension returns the extension of a file, without that of a template: .yaml for values.yaml.j2.
func extension(path string) string {
	if ext := filepath.Ext(path); slices.Contains(templates, ext) {
		path = strings.TrimSuffix(path, ext)
	}
	return filepath.Ext(path)
}

func lintableIn(dir string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && slices.Contains(lintable, extension(path)) {
			paths = append(paths, path)
		}
		return err
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: no .yaml, .yml, .json, .sh or .tf file", dir)
	}
	return paths, err
}

// lintData is the JSON result of lint.
type lintData struct {
	Kinds     []string `json:"kinds"`
	Corrected string   `json:"corrected,omitempty"`
}

// kinds returns a function that writes the kinds of the inputs and, if they have no findings, the summary.
func kinds(result *lint.Result) func(io.Writer, check.Style) {
	return func(w io.Writer, style check.Style) {
		what := "checked: " + tally(result.Kinds)
		switch {
		case len(result.Kinds) == 0:
			what = "nothing to check"
		case result.Judged == 0:
			what = "nothing to check in: " + tally(result.Kinds)
		}
		fmt.Fprintln(w, style.Dim(check.OneLine(what)))
		if result.Judged > 0 && len(result.Report.Findings) == 0 {
			fmt.Fprintln(w, style.Green(result.Report.Summary()))
		}
	}
}

// writeFixed writes the corrected command to standard output, and the findings to standard error.
func (o *lintRun) writeFixed(result *lint.Result) error {
	for i := range result.Report.Findings {
		result.Report.Findings[i].Text = "" // the output shows the corrected lines instead
	}
	text := result.Corrected
	if !o.showSecrets {
		text = o.secrets.Mask(text)
	}
	if text != result.Corrected && o.format == "text" {
		fmt.Fprintln(o.Err, "note: passwords and tokens are masked; add --show-secrets to print them")
	}
	return o.answer(answer{Report: result.Report, Document: []byte(strings.TrimRight(text, "\n") + "\n"),
		KeepSecrets: o.showSecrets, Data: lintData{result.Kinds, text}})
}

// reportSkipped prints a note about the inputs in which nothing was checked. A folder counts as one input. If nothing
// was checked in any input, it returns an error instead.
func (o *lintRun) reportSkipped(result *lint.Result, inputs []string) error {
	checked := func(name string) bool {
		return !slices.Contains(result.Unjudged, name) &&
			!slices.ContainsFunc(o.unread, func(f check.Finding) bool { return f.File == name })
	}
	skipped := slices.DeleteFunc(slices.Clone(inputs), func(input string) bool {
		return slices.ContainsFunc(o.names[input], checked)
	})
	text := check.OneLine(strings.Join(skipped[:min(len(skipped), 5)], ", "))
	if len(skipped) == len(inputs) {
		return fmt.Errorf("%s: nothing to check; gpuop lint --help lists the kinds of files", text)
	}
	if len(skipped) > 0 {
		fmt.Fprintf(o.Err, "note: %s skipped: %s\n", check.Count(len(skipped), "input"), text)
	}
	return nil
}
