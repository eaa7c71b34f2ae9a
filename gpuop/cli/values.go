package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/values"
)

func newValuesCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "values",
		Short: "Write and migrate values of the gpu-operator chart",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newValuesGenCommand(e), newValuesMigrateCommand(e))
	return cmd
}

// choices formats names and their descriptions for help texts.
func choices(list [][2]string) string {
	var b strings.Builder
	for _, c := range list {
		fmt.Fprintf(&b, "  %-24s %s\n", c[0], c[1])
	}
	return b.String()
}

func newValuesGenCommand(e *env) *cobra.Command {
	var (
		request values.Request
		version string
	)
	cmd := &cobra.Command{
		Use:   "gen PLATFORM [FEATURE…]",
		Short: "Write a values file and the helm command for a platform and features",
		Long: "gen writes a values file with the reason for each value. " +
			"Comments at the top contain the helm command\nand the steps before and after it.\n\n" +
			"Platforms:\n" + choices(values.Platforms()) + "\nFeatures:\n" + choices(values.Features()),
		Example: `  gpuop values gen eks time-slicing=4 --out values.yaml
  gpuop values gen generic gds rdma=host-mofed mig-mixed
  gpuop values gen air-gapped --registry registry.example.com:5000/nvidia-mirror --pull-secret registry-key`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var err error
			if request.Version, err = e.release(version); err != nil {
				return err
			}
			request.Table = e.table
			request.Platform, request.Features = args[0], args[1:]
			if request.Exporter == values.ExporterImage {
				request.Exporter += ":" + cmp.Or(imageTag(e.version), "latest")
			}
			plan, err := values.Generate(request)
			if err != nil {
				return err
			}
			file := cmp.Or(e.outPath, "values.yaml")
			text, err := plan.YAML(file)
			if err != nil {
				return err
			}
			judged, err := lint.Lint(lint.Options{Table: e.table, Version: plan.Version.String(),
				Files: []lint.Input{{Name: file, Data: text}}})
			if err != nil {
				return err
			}
			return e.answer(answer{
				Document: true, KeepSecrets: true, Report: judged.Report, Quiet: true, Text: literal(text),
				Data: struct {
					*values.Plan
					Command string `json:"command"`
					File    string `json:"file"`
				}{plan, plan.Command(file), string(text)},
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&version, "version", "latest", "chart `release` to write for")
	flags.StringVar(&request.Registry, "registry", "", "private `registry` for all images, with an optional path")
	flags.StringVar(&request.PullSecret, "pull-secret", "", "`name` of the Secret for that registry")
	flags.StringVar(&request.Exporter, "exporter-image",
		values.ExporterImage, "`image` of the exporter feature, with its tag")
	return cmd
}

// imageTag returns the tag of this project's images for a version of gpuop. It returns "" for pre-releases and
// development builds.
func imageTag(version string) string {
	if strings.ContainsAny(version, "()-+") {
		return ""
	}
	return version
}

// literal returns a function that writes the text unchanged.
func literal(text []byte) func(io.Writer, check.Style) error {
	return func(w io.Writer, _ check.Style) error {
		_, err := w.Write(text)
		return err
	}
}

// release resolves the name of a release. If the table does not have the release, the error wraps chart.ErrVersion.
func (e *env) release(s string) (chart.Version, error) {
	v, exact, err := e.table.Resolve(s)
	if err == nil && !exact {
		err = fmt.Errorf("%w %q: the nearest known release is %s; add the release with --chart", chart.ErrVersion, s, v)
	}
	return v, err
}

func newValuesMigrateCommand(e *env) *cobra.Command {
	var from, to string
	var downgrade bool
	cmd := &cobra.Command{
		Use:   "migrate FILE --from RELEASE [--to RELEASE]",
		Short: "Rewrite a values file for another release, with a list of changes",
		Long: `migrate rewrites a values file for another release of the chart. It keeps comments, blank lines and
the order.

A key is renamed only if a release renamed it. A setting is dropped only if nothing in the values, templates and
custom resources of the target reads it. All other settings stay, including unknown keys. The list of changes goes
to standard error; with -o json it is part of the output. It includes each changed default, and each setting that
the old release ignores and the target uses. A target older than the file needs --downgrade.

The exit code is 1 if a setting was dropped, has a new effect, or has an error.`,
		Example: `  gpuop values migrate values.yaml --from v23.9 --to v26.7 --out values-v26.yaml`,
		Args:    exactly(1, "one values file, or - for standard input"),
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := e.release(from)
			if err != nil {
				return fmt.Errorf("--from: %w", err)
			}
			b, err := e.release(to)
			if err != nil {
				return fmt.Errorf("--to: %w", err)
			}
			data, err := e.read(args[0])
			if err != nil {
				return err
			}
			m, err := values.Migrate(e.table, inputName(args[0]), data, a, b, downgrade)
			if errors.Is(err, values.ErrDowngrade) {
				return fmt.Errorf("%w: add --downgrade to allow it; the custom resources of %s stay in the cluster",
					err, a)
			}
			if err != nil {
				return err
			}
			if m.YAML != "" && e.format == "text" {
				fmt.Fprint(e.Err, changeList(m))
			}
			return e.answer(answer{Document: true, KeepSecrets: true, Report: m.Report,
				Quiet: len(m.Report.Findings) == 0, Data: m, Fail: m.ChangesEffect(), Text: literal([]byte(m.YAML))})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the `release` that the file is for")
	cmd.Flags().StringVar(&to, "to", "latest", "the `release` to write for")
	cmd.Flags().BoolVar(&downgrade, "downgrade", false, "allow an older target release")
	_ = cmd.MarkFlagRequired("from")
	return cmd
}

func changeList(m *values.Migration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s → %s: %s\n", m.From, m.To, check.Count(len(m.Changes), "change"))
	width := 0
	for _, c := range m.Changes {
		width = max(width, min(len(c.Path), 48))
	}
	marks := map[string]string{"dropped": "-", "renamed": ">", "set": "=", "begins": "!", "default": "~"}
	for _, c := range m.Changes {
		fmt.Fprintf(&b, "%s %-*s  %s\n", marks[c.Kind], width, c.Path, c.Text)
	}
	b.WriteString("(~ changed chart defaults that the file does not set)\n\n")
	return b.String()
}
