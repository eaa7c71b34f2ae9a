package cli

import (
	"context"
	_ "embed" // for help.txt
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/release"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/values"
)

// These are the exit codes of Run.
const (
	exitClean    = 0 // no finding reaches --fail-on
	exitFindings = 1 // a finding reaches --fail-on, or the answer sets Fail
	exitBadInput = 2 // invalid flags or input
	exitNoAnswer = 3 // the cluster does not answer
)

var errFindings = errors.New("findings")

// Streams are the standard streams. Terminal is set if Out can show color.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool
}

// env is the state of one call of Run: the streams, the common flags and what was read.
type env struct {
	Streams
	version string // the version of gpuop
	format  string
	outPath string
	failOn  check.Severity // the zero value means that the flag is not set
	ignored []check.Ignore
	verbose bool     // passed checks are shown too
	inputs  []string // the files and folders read so far
	// total is the total size of the inputs in bytes. referenced is that of the files to which the inputs refer.
	total, referenced int
	// secrets are the passwords and tokens in the arguments and in the files that were read. They are masked in all
	// output.
	secrets check.Secrets
	// table has the facts about the chart, including the releases of --chart.
	table *chart.Table
	// chartVersion is the release of the last --chart; empty without --chart.
	chartVersion string
}

// interruptGrace is the time that a command has to return after an interrupt. A blocked read of a pipe never returns.
const interruptGrace = 1500 * time.Millisecond

// Run runs gpuop and returns the exit code. args[0] is the name of the program. --version prints version.
func Run(ctx context.Context, args []string, version string, streams Streams) int {
	e := &env{Streams: streams, version: version, table: chart.Load()}
	e.secrets.Learn(strings.Join(args, " "))
	e.Err = &maskedWriter{to: streams.Err, secrets: &e.secrets}
	root := newRoot(e, args[0])
	root.SetArgs(args[1:])
	done, interrupted := make(chan int, 1), make(chan struct{})
	go func() { done <- e.execute(ctx, root) }()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(interruptGrace, func() { close(interrupted) }) })
	defer stop()
	select {
	case code := <-done:
		return code
	case <-interrupted:
		fmt.Fprintf(streams.Err, "%s: interrupted\n", root.DisplayName())
		return exitBadInput
	}
}

// execute runs the command, prints its error, and returns the exit code.
func (e *env) execute(ctx context.Context, root *cobra.Command) int {
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitClean
	case errors.Is(err, errFindings):
		return exitFindings
	}
	fmt.Fprintf(e.Err, "%s: %s\n", root.DisplayName(), e.secrets.Mask(err.Error()))
	if errors.Is(err, cluster.ErrUnreachable) {
		return exitNoAnswer
	}
	return exitBadInput
}

// maskedWriter masks the secrets in everything that is written to standard error.
type maskedWriter struct {
	to      io.Writer
	secrets *check.Secrets
}

func (m *maskedWriter) Write(p []byte) (int, error) {
	_, err := io.WriteString(m.to, m.secrets.Replace(string(p)))
	return len(p), err
}

func newRoot(e *env, calledBy string) *cobra.Command {
	name := strings.TrimSuffix(filepath.Base(calledBy), ".exe")
	if plugin, found := strings.CutPrefix(name, "kubectl-"); found {
		name = "kubectl " + strings.ReplaceAll(plugin, "_", "-")
	}
	root := &cobra.Command{
		Use:           "gpuop",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:         "Check GPU Operator values, manifests, clusters and nodes",
		Version:       e.version,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			formats := []string{"text", "json"}
			if cmd.Name() == "lint" {
				formats = append(formats, "sarif")
			}
			if !slices.Contains(formats, e.format) {
				return fmt.Errorf("unknown output format %q, expected %s", e.format, strings.Join(formats, ", "))
			}
			return nil
		},
	}
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.SetVersionTemplate("gpuop {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
	})
	e.addFlags(root)
	root.AddGroup(&cobra.Group{ID: "offline", Title: "Before you apply:"},
		&cobra.Group{ID: "running", Title: "On a running cluster or node:"})
	for group, commands := range map[string][]*cobra.Command{
		"offline": {newLintCommand(e), newImagesCommand(e), newExplainCommand(e),
			group("values", "Write and migrate values of the gpu-operator chart",
				newValuesGenCommand(e), newValuesMigrateCommand(e)),
			group("mig", "Plan and apply MIG partitions", newMIGProfilesCommand(e), newMIGFitCommand(e),
				newMIGApplyCommand(e), replacedCommand("predict", "gpuop node predict"))},
		"running": {newPreflightCommand(e), newVerifyCommand(e), newDriftCommand(e), newNodeCommand(e)},
	} {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	root.AddCommand(replacedCommand("share", "gpuop node predict"))
	root.CompletionOptions.HiddenDefaultCmd = true
	addHelp(root, "gpuop")
	return root
}

// addFlags adds the flags that all commands have.
func (e *env) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVarP(&e.format, "output", "o", "text", "output `format`: text or json; lint also has sarif")
	flags.StringVar(&e.outPath, "out", "", "write to this `file` instead of standard output")
	flags.Func("chart", "add a release: the `folder` or archive that helm pull wrote; may be repeated",
		func(name string) error {
			r, err := release.Open(name)
			if err != nil {
				return err
			}
			e.inputs, e.table, e.chartVersion = append(e.inputs, name), e.table.With(r), r.Version.String()
			return nil
		})
	flags.Func("fail-on",
		"exit 1 on this `severity` or worse: error, warning, note, never (default: error; for clusters warning)",
		func(word string) (err error) {
			e.failOn, err = check.AtSeverity(word)
			return err
		})
	flags.Func("ignore", "ignore findings of a `check[:subject]`; may be repeated", func(text string) error {
		i, err := check.ParseIgnore(text)
		e.ignored = append(e.ignored, i)
		return err
	})
}

// helpTexts has the help of each command below a line with its name.
//
//go:embed help.txt
var helpTexts string

// addHelp sets the help and the examples of a command and of its subcommands.
func addHelp(cmd *cobra.Command, name string) {
	_, text, _ := strings.Cut("\n"+helpTexts, "\n# "+name+"\n")
	text, _, _ = strings.Cut(text, "\n# ")
	text, examples, _ := strings.Cut(text, "\nExamples:\n")
	lists := strings.NewReplacer("{platforms}", choices(values.Platforms()), "{features}", choices(values.Features()))
	cmd.Long, cmd.Example = strings.TrimSpace(lists.Replace(text)), strings.TrimRight(examples, "\n")
	for _, c := range cmd.Commands() {
		addHelp(c, name+" "+c.Name())
	}
}

// choices formats names and their descriptions.
func choices(list [][2]string) string {
	var lines []string
	for _, c := range list {
		lines = append(lines, fmt.Sprintf("  %-24s %s", c[0], c[1]))
	}
	return strings.Join(lines, "\n")
}

// group returns a command that only has subcommands.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(commands...)
	return cmd
}

// replacedCommand returns a hidden command that fails with an error naming its successor.
func replacedCommand(name, successor string) *cobra.Command {
	run := func(cmd *cobra.Command, _ []string) error {
		return fmt.Errorf("%s was replaced by %s", cmd.CommandPath(), successor)
	}
	return &cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true, RunE: run}
}

// exactly is like cobra.ExactArgs, but the error says which arguments are expected.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return fmt.Errorf("expected %s, got %s (see %s --help)",
			what, check.Count(len(args), "argument"), cmd.CommandPath())
	}
}
