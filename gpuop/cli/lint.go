package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

func newLintCommand(e *env) *cobra.Command {
	var o lintFlags
	cmd := &cobra.Command{
		Use:   "lint [FILE…] [--command 'helm install …'] [--set key=value]",
		Short: "Find what is wrong before it is applied",
		Long: `Lint judges values of the gpu-operator chart, also inside the files of Flux, Argo CD, k3s, helmfile and
Terraform, pasted helm and kubectl commands (whole scripts with here-documents too), ClusterPolicy, NVIDIADriver,
GPUCluster, device plugin and mig-parted configs, ConfigMaps around them, pod manifests and node dumps. It finds out by
itself which of these a file is. A directory stands for the .yaml, .yml, .json, .sh and .tf files in it and the
templates of such (values.yaml.gotmpl, .tpl, .tftpl, .j2), - for standard input.`,
		Example: `  gpuop lint values.yaml
  gpuop lint --command "$(cat install.sh)"
  gpuop lint --fix --version latest --command "$(cat install.sh)"
  gpuop lint --version v25.3 --set driver.enabled=false --set mig.strategy=mixed
  kubectl get nodes -o json | gpuop lint - values.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error { return e.lint(&o, cmd.CommandPath(), args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.options.Version, "version", "", "judge for this chart `release`: v26.7.0, v26.7 or latest (default: what the command names, else the newest)")
	flags.StringVarP(&o.options.Command, "command", "c", "", "judge this shell `text`; standard input when it is -")
	flags.StringArrayVar(&o.options.Sets, "set", nil, "judge these `key=value` pairs, alone or on top of a values file; may be repeated")
	flags.StringArrayVar(&o.options.Taints, "taint", nil, "a taint of the GPU nodes, `key[=value]:Effect`, to compare tolerations with; may be repeated")
	flags.BoolVar(&o.fix, "fix", false, "print the corrected command instead of the findings; what is dropped, and why, goes to the error stream")
	flags.BoolVar(&o.showSecrets, "show-secrets", false, "do not mask passwords and tokens in the corrected command")
	return cmd
}

// lintFlags are the options of lint.
type lintFlags struct {
	options     lint.Options
	fix         bool
	showSecrets bool
	// groups are the names of the inputs, those of one argument together.
	groups [][]string
	// folders are the folders in which inputs were found, by their names.
	folders map[string]string
	// unread are the inputs that could not be read.
	unread []report.Row
}

// linted reads what is to be linted, and returns what the script is called.
func (e *env) linted(o *lintFlags, path string, args []string) (string, error) {
	if len(args) == 0 && o.options.Command == "" && len(o.options.Sets) == 0 {
		return "", fmt.Errorf("%w: nothing to lint: name a file, --command or --set (see %s --help)", errUsage, path)
	}
	if o.options.Command == "-" {
		text, err := e.read("-")
		if err != nil {
			return "", err
		}
		o.options.Command = string(text)
	}
	files, scripts, err := e.sources(o, args)
	if err != nil {
		return "", err
	}
	several := len(scripts) > 1 || len(scripts) > 0 && o.options.Command != ""
	if several && o.fix {
		return "", fmt.Errorf("%w: --fix corrects one script at a time: give it %s and the rest apart", errUsage, scripts[0].Name)
	}
	name := lint.CommandName
	for _, s := range scripts {
		if several {
			s.Script = true
			files = append(files, s)
		} else {
			o.options.Command, name = string(s.Data), s.Name
		}
	}
	if o.options.Command != "" && name == lint.CommandName {
		o.groups = append(o.groups, []string{name})
	}
	o.options.Files = files
	o.options.Read, o.options.Fix = e.beside(name, o.folders), o.fix
	return name, nil
}

func (e *env) lint(o *lintFlags, path string, args []string) error {
	name, err := e.linted(o, path, args)
	if err != nil {
		return err
	}
	o.options.Table = e.table
	if o.options.Version == "" && o.options.Command == "" {
		o.options.Version = e.taught
	}
	result, err := lint.Lint(o.options)
	if err != nil {
		return err
	}
	result.Report.Add(o.unread...)
	for i := range result.Report.Rows {
		if f := &result.Report.Rows[i]; f.File == lint.CommandName {
			f.File = name
		}
	}
	if o.fix {
		if o.options.Command == "" {
			return fmt.Errorf("%w: --fix corrects a command: give --command or a script", errUsage)
		}
		return e.unjudged(o, result, name, e.fixed(o.options, result, o.showSecrets))
	}
	return e.unjudged(o, result, name, e.answer(answer{Report: result.Report, Text: kinds(result), Data: lintData{Kinds: result.Kinds}}))
}

// unjudged names the inputs in which nothing was judged; a directory is one input. They make an
// error of the answer, unless it is one already by what was found in the others.
func (e *env) unjudged(o *lintFlags, result *lint.Result, script string, answered error) error {
	if answered != nil && !errors.Is(answered, errFindings) {
		return answered
	}
	unread := map[string]bool{}
	for _, f := range o.unread {
		unread[f.File] = true
	}
	for _, name := range result.Unjudged {
		if name == lint.CommandName {
			name = script
		}
		unread[name] = true
	}
	var inputs []string
	for _, names := range o.groups {
		if !slices.ContainsFunc(names, func(name string) bool { return !unread[name] }) {
			inputs = append(inputs, report.OneLine(strings.Join(names, ", ")))
		}
	}
	if len(inputs) == 0 {
		return answered
	}
	err := fmt.Errorf("%w: nothing in %s was judged; gpuop lint --help says what it reads", errNothing, strings.Join(inputs, ", "))
	others := report.Report{Rows: slices.DeleteFunc(slices.Clone(result.Report.Rows), func(f report.Row) bool { return unread[f.File] })}
	if !e.fails(&others) {
		return err
	}
	fmt.Fprintf(e.Err, "note: %s\n", strings.TrimPrefix(err.Error(), errNothing.Error()+": "))
	return answered
}

// lintData is the result of lint for machines.
type lintData struct {
	Kinds     []string `json:"kinds"`
	Corrected string   `json:"corrected,omitempty"`
	// Dropped is what the corrected command leaves out, with the proof that it does nothing.
	Dropped []lint.Drop `json:"dropped,omitempty"`
}

// kinds writes what the inputs were taken for.
func kinds(result *lint.Result) func(io.Writer, report.Style) error {
	return func(w io.Writer, style report.Style) error {
		if len(result.Kinds) == 0 {
			_, err := fmt.Fprintln(w, style.Dim("nothing could be judged"))
			return err
		}
		if result.Judged == 0 && len(result.Report.Rows) == 0 {
			_, err := fmt.Fprintln(w, style.Dim(report.OneLine("read, and nothing judged: "+strings.Join(count(result.Kinds), ", "))))
			return err
		}
		if _, err := fmt.Fprintln(w, style.Dim(report.OneLine("judged: "+strings.Join(count(result.Kinds), ", ")))); err != nil {
			return err
		}
		if len(result.Report.Rows) > 0 {
			return nil
		}
		_, err := fmt.Fprintln(w, style.Green(result.Report.Summary()))
		return err
	}
}

// count joins equal neighbours: pod, pod, node becomes 2 × pod, node.
func count(words []string) []string {
	var out []string
	for i := 0; i < len(words); {
		n := 1
		for i+n < len(words) && words[i+n] == words[i] {
			n++
		}
		if n > 1 {
			out = append(out, fmt.Sprintf("%d × %s", n, words[i]))
		} else {
			out = append(out, words[i])
		}
		i += n
	}
	return out
}

// fixed writes the corrected command, and to the error stream what remains to be done by hand.
func (e *env) fixed(options lint.Options, before *lint.Result, showSecrets bool) error {
	options.Command, options.Files, options.Sets, options.Fix = before.Corrected, nil, nil, false
	after, err := lint.Lint(options)
	if err != nil {
		return err
	}
	text := before.Corrected
	if !showSecrets {
		text = lint.Mask(text)
		if text != before.Corrected && e.format == "text" {
			fmt.Fprintln(e.Err, "note: passwords and tokens are masked; --show-secrets writes them")
		}
	}
	if e.format == "text" {
		for _, d := range before.Dropped {
			fmt.Fprintf(e.Err, "dropped %s: %s\n", d.Subject, d.Proof)
			if len(d.Instead) > 0 {
				fmt.Fprintf(e.Err, "  instead %s\n", strings.Join(d.Instead, ", "))
			}
		}
		if len(before.Dropped) > 0 {
			fmt.Fprintln(e.Err)
		}
	}
	return e.answer(answer{
		Report: after.Report, Document: true, Data: lintData{after.Kinds, text, before.Dropped}, Fail: len(before.Dropped) > 0,
		Text: func(w io.Writer, _ report.Style) error {
			_, err := io.WriteString(w, strings.TrimRight(text, "\n")+"\n")
			return err
		},
	})
}

var lintable = []string{".yaml", ".yml", ".json", ".sh", ".tf"}

// templates are the endings that Helmfile, Terraform and Ansible put behind that of what a template makes.
var templates = []string{".gotmpl", ".tpl", ".tftpl", ".j2"}

// extension is the ending of a file, of a template that of what it makes: .yaml for values.yaml.j2.
func extension(path string) string {
	if ext := filepath.Ext(path); slices.Contains(templates, ext) {
		path = strings.TrimSuffix(path, ext)
	}
	return filepath.Ext(path)
}

// sources reads the files that the arguments name; scripts are those that end in .sh.
func (e *env) sources(o *lintFlags, args []string) (files, scripts []lint.Input, err error) {
	o.folders = map[string]string{}
	for _, arg := range args {
		paths := []string{arg}
		if arg != "-" {
			info, err := os.Stat(arg)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil, err
			}
			if err == nil && info.IsDir() {
				if paths, err = lintableIn(arg); err != nil {
					return nil, nil, err
				}
			}
		}
		var names []string
		for _, path := range paths {
			data, err := e.read(path)
			if errors.Is(err, fs.ErrNotExist) && path == arg {
				return nil, nil, err
			}
			if err != nil {
				o.notRead(path, arg, err)
				names = append(names, inputName(path))
				continue
			}
			if path != arg {
				o.folders[path] = arg
			}
			input := lint.Input{Name: inputName(path), Data: data, Found: path != arg}
			names = append(names, input.Name)
			if extension(path) == ".sh" {
				scripts = append(scripts, input)
			} else {
				files = append(files, input)
			}
		}
		o.groups = append(o.groups, names)
	}
	return files, scripts, nil
}

// notRead makes a row of an input that cannot be read. One that was found in a folder is a note: nobody has
// named it.
func (o *lintFlags) notRead(path, arg string, err error) {
	f := report.Row{ID: "not-read", State: report.Failed, File: inputName(path), Reason: "it is not judged: " + err.Error()}
	if path != arg {
		f.State = report.Note
	}
	o.unread = append(o.unread, f)
}

var (
	errNothing = errors.New("nothing judged")
	errNoFiles = errors.New("no .yaml, .yml, .json, .sh or .tf file")
)

func lintableIn(dir string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && slices.Contains(lintable, extension(path)) {
			paths = append(paths, path)
		}
		return err
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: %w", dir, errNoFiles)
	}
	return paths, err
}
