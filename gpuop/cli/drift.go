package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/strvals"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/drift"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

var errValues = errors.New("unreadable values")

func newDriftCommand(e *env) *cobra.Command {
	var files, sets []string
	var c *connection
	cmd := &cobra.Command{
		Use:   "drift [-f VALUES]... [--set KEY=VALUE]...",
		Short: "Compare the values with the Helm release and the ClusterPolicy",
		Long: `drift compares the values of -f and --set with the Helm release, and the release with the
ClusterPolicy. It lists each difference. For a field of the ClusterPolicy it also prints who changed it: the field
manager, the operation and the time. If a Flux HelmRelease or an Argo CD Application manages the installation, drift
names it.

Without -f and --set, only the release is compared with the ClusterPolicy. drift never writes to the cluster.`,
		Example: `  gpuop drift -f values.yaml
  gpuop drift -f values.yaml -f prod.yaml --set driver.version=580.95.05 -o json
  gpuop drift --from must-gather/`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opt, err := e.intended(files, sets)
			if err != nil {
				return err
			}
			return e.drift(cmd.Context(), c, opt)
		},
	}
	c = connect(cmd)
	c.managed = true
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "a values `file`, as in helm upgrade; - for standard input; "+
		"may be repeated; later files override earlier ones")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "a value as in helm's --set: `KEY=VALUE`; may be repeated")
	e.verboseFlag(cmd)
	return cmd
}

func (e *env) drift(ctx context.Context, c *connection, opt drift.Options) error {
	s, err := e.state(ctx, c, drift.Kinds()...)
	if err != nil {
		return err
	}
	return e.answer(answer{Report: clusterReport(s, drift.Compare(s, opt))})
}

// intended returns the options for drift, with the values of the files and of --set merged as Helm merges them.
func (e *env) intended(files, sets []string) (drift.Options, error) {
	opt := drift.Options{Table: e.table, Hidden: &e.secrets}
	var names, flags []string
	merged := map[string]any{}
	for _, file := range files {
		data, err := e.read(file)
		if err != nil {
			return opt, err
		}
		_, findings := model.Settings(inputName(file), data, nil)
		for _, f := range findings {
			if f.Severity == check.Error {
				where := inputName(file)
				if f.Line > 0 {
					where += fmt.Sprintf(":%d", f.Line)
				}
				return opt, fmt.Errorf("%w: %s: %s", errValues, where, f.Reason)
			}
		}
		var m map[string]any
		if err := yaml.Unmarshal(data, &m); err != nil {
			return opt, fmt.Errorf("%w: %s: expected a mapping of chart values: %w", errValues, inputName(file), err)
		}
		merge(merged, m)
		names, flags = append(names, inputName(file)), append(flags, "-f "+input.Quote(file))
	}
	for _, set := range sets {
		if _, err := model.ParseSet(set); err != nil {
			return opt, fmt.Errorf("%w: %w", errValues, err)
		}
		if err := strvals.ParseInto(set, merged); err != nil {
			return opt, fmt.Errorf("%w: --set %s: %w", errValues, set, err)
		}
		flags = append(flags, "--set "+input.Quote(maskSet(set)))
	}
	if len(sets) > 0 {
		names = append(names, "--set")
	}
	if len(names) == 0 {
		return opt, nil
	}
	opt.Intended, opt.From, opt.Flags = merged, strings.Join(names, " and "), strings.Join(flags, " ")
	return opt, nil
}

// maskSet replaces the values of secret keys in a valid argument of --set with ***.
func maskSet(set string) string {
	assignments, _ := model.Assignments(set, true)
	for _, a := range assignments {
		name, _, _ := strings.Cut(a.Text, "=")
		if check.IsSecretName(a.Path.String() + a.Element) {
			set = strings.Replace(set, a.Text, name+"=***", 1)
		}
	}
	return set
}

// merge merges values into into, as Helm does: maps are merged, other values are replaced, and null is kept.
func merge(into, values map[string]any) {
	for name, value := range values {
		inner, isMap := value.(map[string]any)
		if have, both := into[name].(map[string]any); isMap && both {
			merge(have, inner)
			continue
		}
		into[name] = value
	}
}
