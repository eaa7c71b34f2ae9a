package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/release"
)

// These are the exit codes of Run.
const (
	exitClean    = 0 // no finding reaches --fail-on
	exitFindings = 1 // a finding reaches --fail-on, or the answer sets Fail
	exitBadInput = 2 // invalid flags or input
	exitNoAnswer = 3 // the cluster does not answer
)

var (
	errFindings = errors.New("findings")
	errUsage    = errors.New("usage")
)

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
	failOn  string
	// ignore has the arguments of --ignore. ignored has the parsed arguments.
	ignore  []string
	ignored []check.Ignore
	verbose bool // passed checks are shown too
	charts  []string
	inputs  []string // the files and folders read so far
	total   int      // total size of the inputs in bytes
	// referenced is the total size in bytes of the files to which the inputs refer.
	referenced int
	// secrets are the passwords and tokens in the arguments and in the files that were read. They are masked in all
	// output.
	secrets check.Secrets
	// table has the facts about the chart, including the releases of --chart.
	table *chart.Table
	// chartVersion is the release of the last --chart; empty without --chart.
	chartVersion string
}

// Run runs gpuop and returns the exit code. args[0] is the name of the program. --version prints version.
func Run(ctx context.Context, args []string, version string, streams Streams) int {
	e := &env{Streams: streams, version: version}
	e.secrets.Learn(strings.Join(args, " "))
	e.Err = &maskedWriter{to: streams.Err, secrets: &e.secrets}
	root := newRoot(e, args[0])
	root.SetArgs(args[1:])
	err := e.runInterruptible(ctx, func(ctx context.Context) error {
		return e.maskError(root.ExecuteContext(ctx))
	})
	switch {
	case err == nil:
		return exitClean
	case errors.Is(err, errFindings):
		return exitFindings
	default:
		// errUsage is only a marker: users see the text after it
		fmt.Fprintf(streams.Err, "%s: %s\n", root.DisplayName(), strings.TrimPrefix(err.Error(), errUsage.Error()+": "))
		if errors.Is(err, cluster.ErrUnreachable) {
			return exitNoAnswer
		}
		return exitBadInput
	}
}

// overview is the help of gpuop itself.
const overview = `gpuop finds mistakes in an installation of NVIDIA's GPU Operator, ` +
	`and writes correct values and commands.
What do you have at hand?

  a file or a command, before it is applied      gpuop lint FILE…, gpuop images VALUES, gpuop values migrate VALUES
  a cluster that does not work                   gpuop verify
  a cluster before an installation or upgrade    gpuop preflight
  a cluster that somebody has changed            gpuop drift -f VALUES
  a must-gather folder                           gpuop verify --from FOLDER
  a node with a GPU                              sudo gpuop node
  GPUs to share or partition                     gpuop node predict -f FILE, gpuop mig fit --gpu MODEL PROFILE…
  a label, a chart key or the ID of a check      gpuop explain WORD
  no values file yet                             gpuop values gen PLATFORM

gpuop is read-only, except for mig apply --apply, which sets one node label, and --out, which writes a file.

Exit codes: 0 no finding of severity --fail-on or worse; 1 such a finding, or a timeout; 2 invalid input, or nothing
to check; 3 the cluster does not answer.`

func newRoot(e *env, calledBy string) *cobra.Command {
	name := strings.TrimSuffix(filepath.Base(calledBy), ".exe")
	display := name
	if plugin, found := strings.CutPrefix(name, "kubectl-"); found {
		display = "kubectl " + strings.ReplaceAll(plugin, "_", "-")
	}
	root := &cobra.Command{
		Use:           "gpuop",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: display},
		Short:         "Check GPU Operator values, manifests, clusters and nodes",
		Long:          overview,
		Version:       e.version,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := e.check(cmd.Name()); err != nil {
				return err
			}
			return e.learn()
		},
	}
	root.SetIn(e.In)
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.SetVersionTemplate("gpuop {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w (see %s --help)", errUsage, err, cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVarP(&e.format, "output", "o", "text", "output `format`: text or json; lint also has sarif")
	flags.StringVar(&e.outPath, "out", "", "write to this `file` instead of standard output")
	flags.StringArrayVar(&e.charts, "chart", nil,
		"add a release: the `folder` or archive that helm pull wrote; may be repeated")
	flags.StringVar(&e.failOn, "fail-on", "",
		"exit 1 on this `severity` or worse: error, warning, note, never (default: error; for clusters warning)")
	flags.StringArrayVar(&e.ignore, "ignore", nil, "ignore findings of a `check[:subject]`; may be repeated")
	root.AddGroup(&cobra.Group{ID: "offline", Title: "Before you apply:"},
		&cobra.Group{ID: "running", Title: "On a running cluster or node:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
		}
		root.AddCommand(commands...)
	}
	add("offline", newLintCommand(e), newValuesCommand(e), newImagesCommand(e), newMIGCommand(e), newExplainCommand(e))
	add("running", newPreflightCommand(e), newVerifyCommand(e), newDriftCommand(e), newNodeCommand(e))
	root.AddCommand(replacedCommand("share", "gpuop node predict"))
	root.CompletionOptions.HiddenDefaultCmd = true
	return root
}

// learn builds the table of chart facts, including the charts of --chart.
func (e *env) learn() error {
	e.table = chart.Load()
	for _, name := range e.charts {
		r, err := release.Open(name)
		if err != nil {
			return fmt.Errorf("--chart: %w", err)
		}
		e.table = e.table.With(r)
		e.chartVersion = r.Version.String()
	}
	return nil
}

// replacedCommand returns a hidden command that fails with an error naming its successor.
func replacedCommand(name, successor string) *cobra.Command {
	run := func(cmd *cobra.Command, _ []string) error {
		return fmt.Errorf("%w: %s was replaced by %s", errUsage, cmd.CommandPath(), successor)
	}
	return &cobra.Command{Use: name, Hidden: true, DisableFlagParsing: true, RunE: run}
}

// exactly is like cobra.ExactArgs, but the error says which arguments are expected.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return fmt.Errorf("%w: expected %s, got %s (see %s --help)",
			errUsage, what, check.Count(len(args), "argument"), cmd.CommandPath())
	}
}

// fails reports whether the findings make the exit code 1.
func (e *env) fails(r *check.Report) bool {
	least := check.Error
	switch {
	case e.failOn != "":
		least, _ = check.AtSeverity(e.failOn) // cannot fail: env.check has validated --fail-on
	case r.Judged:
		least = check.Waiting
	}
	return r.AtLeast(least)
}
