package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/values"
)

// release resolves the argument of a flag that names a release. If the table does not have the release, the error wraps
// chart.ErrVersion.
func (e *env) release(flag, name string) (chart.Version, error) {
	v, exact, err := e.table.Resolve(name)
	if err == nil && !exact {
		err = fmt.Errorf("%w %q: the nearest release is %s; add yours with --chart", chart.ErrVersion, name, v)
	}
	if err != nil {
		err = fmt.Errorf("--%s: %w", flag, err)
	}
	return v, err
}

func newValuesGenCommand(e *env) *cobra.Command {
	request := values.Request{}
	version := ""
	cmd := &cobra.Command{Use: "gen PLATFORM [FEATURE…]", Args: cobra.MinimumNArgs(1),
		Short: "Write a values file and the helm command for a platform and features",
		RunE: func(_ *cobra.Command, args []string) (err error) {
			if request.Version, err = e.release("version", version); err != nil {
				return err
			}
			request.Table, request.Platform, request.Features = e.table, args[0], args[1:]
			if request.Exporter == values.ExporterImage {
				tag := e.version
				if strings.ContainsAny(tag, "()-+") { // a development build or pre-release has no image
					tag = "latest"
				}
				request.Exporter += ":" + tag
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
			data := struct {
				*values.Plan
				Command string `json:"command"`
				File    string `json:"file"`
			}{plan, plan.Command(file), string(text)}
			return e.answer(answer{Document: text, KeepSecrets: true, Data: data, Report: judged.Report})
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

func newValuesMigrateCommand(e *env) *cobra.Command {
	var from, to string
	var downgrade bool
	cmd := &cobra.Command{Use: "migrate FILE --from RELEASE [--to RELEASE]",
		Short: "Rewrite a values file for another release, with a list of changes",
		Args:  exactly(1, "one values file, or - for standard input"),
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := e.release("from", from)
			if err != nil {
				return err
			}
			b, err := e.release("to", to)
			if err != nil {
				return err
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
				e.printChanges(m)
			}
			return e.answer(answer{Document: []byte(m.YAML), KeepSecrets: true, Data: m, Report: m.Report,
				Fail: m.ChangesEffect()})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the `release` that the file is for")
	cmd.Flags().StringVar(&to, "to", "latest", "the `release` to write for")
	cmd.Flags().BoolVar(&downgrade, "downgrade", false, "allow an older target release")
	_ = cmd.MarkFlagRequired("from")
	return cmd
}

// printChanges writes the changes of a migration to standard error.
func (e *env) printChanges(m *values.Migration) {
	marks := map[string]string{"dropped": "-", "renamed": ">", "set": "=", "begins": "!", "default": "~"}
	fmt.Fprintf(e.Err, "%s → %s: %s\n", m.From, m.To, check.Count(len(m.Changes), "change"))
	for _, c := range m.Changes {
		fmt.Fprintf(e.Err, "%s %-36s  %s\n", marks[c.Kind], c.Path, c.Text)
	}
	fmt.Fprint(e.Err, "(~ changed chart defaults that the file does not set)\n\n")
}
