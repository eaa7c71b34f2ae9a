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
	var o lintFlags
	cmd := &cobra.Command{
		Use:   "lint [FILE…] [--command 'helm install …']",
		Short: "Check values, commands and manifests before they are applied",
		Long: `lint checks values of the gpu-operator chart, files that contain such values (Flux, Argo CD, k3s,
helmfile, Fleet, Kustomize, Terraform, Ansible, GitHub workflows), helm and kubectl commands, scripts, the
operator's custom resources, device plugin and MIG configs, and pod manifests. It detects the kind of each file.

In a directory, lint reads the .yaml, .yml, .json, .sh and .tf files, also with .gotmpl, .tpl, .tftpl or .j2
appended, and skips files that do not clearly belong to the operator. - reads YAML or a script from standard input.

If nothing could be checked, the exit code is 2. Otherwise a note counts the skipped inputs.`,
		Example: `  gpuop lint values.yaml
  gpuop lint --command "$(cat install.sh)"
  gpuop lint --fix --version latest --command "$(cat install.sh)"
  gpuop lint --version v25.3 --command 'helm upgrade gpu-operator nvidia/gpu-operator -f values.yaml ` +
			`--set mig.strategy=mixed'
  kubectl get clusterpolicy -o yaml | gpuop lint -`,
		RunE: func(cmd *cobra.Command, args []string) error { return e.lint(&o, cmd.CommandPath(), args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.options.Version, "version", "",
		"chart `release` to check against (default: the command's --version, else the newest)")
	flags.StringVarP(&o.options.Command, "command", "c", "", "check this shell `text`; - for standard input")
	flags.BoolVar(&o.fix, "fix", false, "print the corrected command, and findings to standard error")
	flags.BoolVar(&o.showSecrets, "show-secrets", false, "do not mask passwords and tokens in the corrected command")
	return cmd
}

// lintFlags holds the flags and inputs of lint.
type lintFlags struct {
	options     lint.Options
	fix         bool
	showSecrets bool
	// script is the name of the input from which the command was read: lint.CommandName or, with --fix, a script.
	script string
	// inputs has the arguments; --command counts as one. groups has the names of the files that each argument stands
	// for.
	groups [][]string
	inputs []string
	// folders maps a file that was found in a directory to the argument that names the directory.
	folders map[string]string
	// unread has the findings about inputs that could not be read.
	unread []check.Finding
}

func (e *env) lint(o *lintFlags, path string, args []string) error {
	if len(args) == 0 && o.options.Command == "" {
		return fmt.Errorf("%w: nothing to lint: specify a file or --command (see %s --help)", errUsage, path)
	}
	if o.options.Command == "-" {
		text, err := e.read("-")
		if err != nil {
			return err
		}
		o.options.Command = string(text)
	}
	if o.options.Command != "" {
		o.script, o.groups, o.inputs = lint.CommandName, [][]string{{lint.CommandName}}, []string{lint.CommandName}
	}
	if err := e.sources(o, args); err != nil {
		return err
	}
	if o.fix && o.options.Command == "" {
		return fmt.Errorf("%w: --fix needs --command or a script", errUsage)
	}
	o.options.Table, o.options.Fix, o.options.Read = e.table, o.fix, e.fileReader(o.script, o.folders)
	isScript := func(f lint.Input) bool { return f.Script }
	if o.options.Version == "" && o.options.Command == "" && !slices.ContainsFunc(o.options.Files, isScript) {
		o.options.Version = e.chartVersion
	}
	result, err := lint.Lint(o.options)
	if err != nil {
		return err
	}
	for _, secret := range result.Secrets {
		e.secrets.Add(secret)
	}
	result.Report.Add(o.unread...)
	if o.fix {
		err = e.fixed(o, result)
	} else {
		err = e.answer(answer{Report: result.Report, Text: kinds(result), Data: lintData{Kinds: result.Kinds}})
	}
	return e.reportUnchecked(o, result, err)
}

// reportUnchecked reports the inputs in which nothing was checked. A directory counts as one input. If no input was
// checked and no other finding fails the command, it returns an error. Otherwise it returns answered, and prints a note
// if any input was skipped. An error other than errFindings is returned unchanged.
func (e *env) reportUnchecked(o *lintFlags, result *lint.Result, answered error) error {
	if answered != nil && !errors.Is(answered, errFindings) {
		return answered
	}
	unread := map[string]bool{}
	for _, f := range o.unread {
		unread[f.File] = true
	}
	for _, name := range result.Unjudged {
		unread[name] = true
		if name == lint.CommandName {
			unread[o.script] = true
		}
	}
	var skipped []string
	for i, names := range o.groups {
		if !slices.ContainsFunc(names, func(name string) bool { return !unread[name] }) {
			skipped = append(skipped, o.inputs[i])
		}
	}
	text := check.OneLine(strings.Join(skipped[:min(len(skipped), 5)], ", "))
	others := check.Report{Findings: slices.DeleteFunc(slices.Clone(result.Report.Findings),
		func(f check.Finding) bool { return unread[f.File] })}
	switch {
	case len(skipped) == 0:
		return answered
	case len(skipped) < len(o.groups) || e.fails(&others):
		fmt.Fprintf(e.Err, "note: %s skipped: %s\n", check.Count(len(skipped), "input"), text)
		return answered
	}
	return fmt.Errorf("%w: %s: nothing to check; gpuop lint --help lists the kinds of files", errUsage, text)
}

// lintData is the JSON result of lint.
type lintData struct {
	Kinds     []string `json:"kinds"`
	Corrected string   `json:"corrected,omitempty"`
}

// kinds returns a function that writes the kinds of the inputs. Equal kinds are counted together. If the inputs have no
// findings, the function also writes the summary.
func kinds(result *lint.Result) func(io.Writer, check.Style) error {
	return func(w io.Writer, style check.Style) error {
		number := map[string]int{}
		for _, k := range result.Kinds {
			number[k]++
		}
		var words []string
		for _, k := range result.Kinds {
			if number[k] > 1 {
				words = append(words, fmt.Sprintf("%d × %s", number[k], k))
			} else if number[k] == 1 {
				words = append(words, k)
			}
			number[k] = 0
		}
		what, found := "checked: ", len(result.Report.Findings) > 0
		switch {
		case len(words) == 0:
			what = "nothing to check"
		case result.Judged == 0 && !found:
			what = "nothing to check in: "
		}
		fmt.Fprintln(w, style.Dim(check.OneLine(what+strings.Join(words, ", "))))
		if result.Judged > 0 && !found {
			fmt.Fprintln(w, style.Green(result.Report.Summary()))
		}
		return nil
	}
}

// fixed writes the corrected command to standard output, and the findings to standard error.
func (e *env) fixed(o *lintFlags, result *lint.Result) error {
	for i := range result.Report.Findings {
		if f := &result.Report.Findings[i]; f.File == lint.CommandName {
			f.File, f.Text = o.script, "" // the output shows the corrected command instead
		}
	}
	text := result.Corrected
	if !o.showSecrets {
		text = e.secrets.Mask(text)
	}
	if text != result.Corrected && e.format == "text" {
		fmt.Fprintln(e.Err, "note: passwords and tokens are masked; add --show-secrets to print them")
	}
	return e.answer(answer{
		Report: result.Report, Document: true, KeepSecrets: o.showSecrets, Data: lintData{result.Kinds, text},
		Text: literal([]byte(strings.TrimRight(text, "\n") + "\n")),
	})
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

// sources reads the files and folders in args. With --fix, a script becomes the command to correct.
func (e *env) sources(o *lintFlags, args []string) error {
	o.folders = map[string]string{}
	for _, arg := range args {
		paths := []string{arg}
		if info, err := os.Stat(arg); err == nil && info.IsDir() {
			if paths, err = lintableIn(arg); err != nil {
				return err
			}
		}
		var names []string
	reading:
		for _, path := range paths {
			name, found := inputName(path), path != arg
			names = append(names, name)
			data, err := e.load(path) // lint.Lint returns the secrets of the files that it checks
			switch script := extension(path) == ".sh"; {
			case errors.Is(err, fs.ErrNotExist) && !found:
				return err
			case errors.Is(err, errInputsTooLarge) && found:
				left := check.Count(len(paths)-len(names)+1, "file")
				o.unread = append(o.unread, check.Finding{Check: notRead, Severity: check.Note, File: arg,
					Reason: fmt.Sprintf("%s not checked, from %s on: %s", left, name, err),
					Fix:    "check its subfolders one at a time"})
				break reading
			case err != nil:
				reason := "not checked: " + err.Error()
				f := check.Finding{Check: notRead, Severity: check.Error, File: name, Reason: reason}
				if found {
					f.Severity = check.Note // the file was found in a directory
				}
				o.unread = append(o.unread, f)
			case script && o.fix && o.options.Command != "":
				return fmt.Errorf("%w: --fix corrects one script at a time: run it for %s, then for each of the others",
					errUsage, cmp.Or(o.script, name))
			case script && o.fix:
				o.options.Command, o.script = string(data), name
			default:
				o.options.Files = append(o.options.Files,
					lint.Input{Name: name, Data: data, Found: found, Script: script})
			}
			if found {
				o.folders[path] = arg
			}
		}
		o.groups, o.inputs = append(o.groups, names), append(o.inputs, arg)
	}
	return nil
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
		err = fmt.Errorf("%w: %s: no .yaml, .yml, .json, .sh or .tf file", errUsage, dir)
	}
	return paths, err
}
