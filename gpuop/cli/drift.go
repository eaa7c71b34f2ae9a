package cli

import (
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

func newDriftCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{Use: "drift [-f VALUES]... [--set KEY=VALUE]...", Args: exactly(0, "no arguments"),
		Short: "Compare the values with the Helm release and the ClusterPolicy"}
	c, v := e.connect(cmd), addValueFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := e.intended(v)
		if err != nil {
			return err
		}
		s, err := e.state(cmd.Context(), c, drift.Kinds()...)
		if err != nil {
			return err
		}
		return e.answer(answer{Report: clusterReport(s, drift.Compare(s, o))})
	}
	return cmd
}

// valueFlags are the flags that set values of the chart.
type valueFlags struct{ files, sets []string }

func addValueFlags(cmd *cobra.Command) *valueFlags {
	v := &valueFlags{}
	cmd.Flags().StringArrayVarP(&v.files, "file", "f", nil,
		"a values `file`, as in helm upgrade; - for standard input; may be repeated; "+
			"later files override earlier ones")
	cmd.Flags().StringArrayVar(&v.sets, "set", nil, "a value as in helm's --set: `KEY=VALUE`; may be repeated")
	return v
}

var errValues = errors.New("unreadable values")

// intended returns the options for drift, with the values of the files and of --set merged as Helm merges them.
func (e *env) intended(v *valueFlags) (drift.Options, error) {
	o := drift.Options{Table: e.table, Hidden: &e.secrets}
	var names, flags []string
	merged := map[string]any{}
	for _, file := range v.files {
		data, err := e.read(file)
		if err != nil {
			return o, err
		}
		name := inputName(file)
		_, findings := model.Settings(name, data, nil)
		for _, f := range findings {
			if f.Severity == check.Error && f.Line > 0 {
				name += fmt.Sprintf(":%d", f.Line)
			}
			if f.Severity == check.Error {
				return o, fmt.Errorf("%w: %s: %s", errValues, name, f.Reason)
			}
		}
		var m map[string]any
		if err := yaml.Unmarshal(data, &m); err != nil {
			return o, fmt.Errorf("%w: %s: expected a mapping of chart values: %w", errValues, name, err)
		}
		merge(merged, m)
		names, flags = append(names, name), append(flags, "-f "+input.Quote(file))
	}
	for _, set := range v.sets {
		if err := strvals.ParseInto(set, merged); err != nil {
			return o, fmt.Errorf("%w: --set %s: %w", errValues, set, err)
		}
		flags = append(flags, "--set "+input.Quote(set))
	}
	if len(v.sets) > 0 {
		names = append(names, "--set")
	}
	if len(names) > 0 {
		o.Intended, o.From, o.Flags = merged, strings.Join(names, " and "), strings.Join(flags, " ")
	}
	return o, nil
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
