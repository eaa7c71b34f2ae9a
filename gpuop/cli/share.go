package cli

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

func newShareCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "share",
		Short: "Predict time-slicing and MPS configurations",
		Long: `share predicts what a node will show before a sharing configuration of the device plugin is applied, for both ways to
install it. gpuop values gen PLATFORM time-slicing=4 writes one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSharePredictCommand(e))
	return cmd
}

type shareResult struct {
	Node      string            `json:"node,omitempty"`
	Route     sharing.Route     `json:"route"`
	Config    string            `json:"config"`
	Effective bool              `json:"effective"`
	Strategy  string            `json:"strategy"`
	Resources map[string]change `json:"resources"`
	Labels    map[string]string `json:"labels"`
	Limits    []sharing.Limits  `json:"limits,omitempty"`
}

type change struct {
	Before int `json:"before"`
	After  int `json:"after"`
}

func newSharePredictCommand(e *env) *cobra.Command {
	var h hardware
	var route, label, deflt, strategy string
	var files []string
	cmd := &cobra.Command{
		Use:   "predict -f FILE (--gpu MODEL [--gpus N] | --node FILE)",
		Short: "Predict labels, capacity and MPS limits of a sharing configuration",
		Long: `predict reads a device-plugin config, or a ConfigMap with several, chooses the one that the node gets as the config
manager would, and shows what the node will show: resources, labels, and under MPS the limits of each client.
Several files make several configs; NAME=FILE names one, otherwise it is named after its file.`,
		Example: `  gpuop share predict -f sharing.yaml --gpu A100-80GB --gpus 8 --default sharing
  gpuop share predict -f configmap.yaml --node gpu-1.json --route plugin
  kubectl get node gpu-1 -o json | gpuop share predict -f any=sharing.yaml --default any --node -`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			r := sharing.Route(route)
			if r != sharing.Operator && r != sharing.Plugin {
				return fmt.Errorf("%w: --route %q, want operator (the GPU Operator) or plugin (the device plugin's own chart)", errUsage, route)
			}
			if err := checkStrategy("--mig-strategy", strategy); err != nil {
				return err
			}
			if len(files) == 0 {
				return fmt.Errorf("%w: say which configuration, with -f FILE", errUsage)
			}
			configs, report, err := e.readConfigs(files)
			if err != nil {
				return err
			}
			n, gpus, findings, err := h.read(e)
			if err != nil {
				return err
			}
			report.Add(findings...)
			if n != nil {
				label = cmp.Or(label, n.Labels[sharing.ConfigLabel])
			}
			return e.answer(share(r, n, gpus, configs, label, deflt, strategy, report))
		},
	}
	h.flags(cmd)
	cmd.Flags().IntVar(&h.memory, "memory-mib", 0, "the GPU's total memory in `MiB`, where the typical one is not right")
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "a device-plugin config or a ConfigMap of them, as `[NAME=]FILE`; - for standard input; may be repeated")
	cmd.Flags().StringVar(&route, "route", "operator", "how the plugin is installed: operator, or plugin for its own chart (`route`)")
	cmd.Flags().StringVar(&label, "label", "", "the `value` of the node's nvidia.com/device-plugin.config label (from --node, if it has one)")
	cmd.Flags().StringVar(&deflt, "default", "", "the `value` of devicePlugin.config.default (operator) or config.default (chart)")
	cmd.Flags().StringVar(&strategy, "mig-strategy", "", "the MIG `strategy` (operator: the node's label nvidia.com/mig.strategy, or single; chart: what the config says, or none)")
	return cmd
}

// readConfigs reads the configs of all files; findings name the file they are in.
func (e *env) readConfigs(files []string) ([]sharing.Named, report.Report, error) {
	var configs []sharing.Named
	var found report.Report
	for _, file := range files {
		name, path, named := strings.Cut(file, "=")
		if !named {
			path = file
			name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
			if path == "-" {
				name = "stdin"
			}
		}
		data, err := e.read(path)
		if err != nil {
			return nil, found, err
		}
		parsed, findings := sharing.ParseAny(data, name)
		for i := range findings {
			findings[i].File = inputName(path)
		}
		for i := range parsed {
			parsed[i].File = inputName(path)
		}
		found.Add(findings...)
		configs = append(configs, parsed...)
	}
	return configs, found, nil
}

func share(route sharing.Route, n *node.Node, gpus []mig.GPU, configs []sharing.Named, label, deflt, migStrategy string, found report.Report) answer {
	var names []string
	for _, c := range configs {
		names = append(names, c.Name)
	}
	name, starts, choice := sharing.Choose(route, names, label, deflt)
	found.Add(choice...)
	shown := name
	if starts && name == "" && len(configs) == 1 {
		shown = configs[0].Name
	}
	var config *sharing.Config
	for _, c := range configs {
		if c.Name == shown {
			config = c.Config
			starts = starts && config != nil && !config.Refused
			for _, f := range config.Dead(route) {
				f.File = c.File
				found.Add(f)
			}
		}
	}

	if n != nil && route == sharing.Operator {
		migStrategy = cmp.Or(migStrategy, n.Labels["nvidia.com/mig.strategy"])
	}
	if migStrategy == "" {
		migStrategy = mig.StrategySingle
		if route == sharing.Plugin {
			migStrategy = cmp.Or(config.MIGStrategy(), mig.StrategyNone)
		}
	}
	effective := starts && name != ""
	before := mig.Predict(gpus, migStrategy, mig.Replication{})
	if n != nil && len(n.GPUResources()) > 0 {
		before.Resources, before.Labels = n.GPUResources(), n.Labels
	}
	after := sharing.Predict(gpus, migStrategy, config)
	found.Add(after.Findings...)
	if !starts {
		after.Resources = map[string]int{}
	}

	result := shareResult{
		Route: route, Config: shown, Effective: effective, Strategy: config.Strategy(),
		Resources: map[string]change{}, Labels: after.Labels, Limits: after.Limits,
	}
	if n != nil {
		result.Node = n.Name
	}
	for resource, count := range before.Resources {
		result.Resources[resource] = change{Before: count, After: after.Resources[resource]}
	}
	for resource, count := range after.Resources {
		result.Resources[resource] = change{Before: before.Resources[resource], After: count}
	}
	return answer{Data: result, Report: found, Text: func(w io.Writer, style report.Style) error {
		return writeShare(w, style, gpus, result, before, after, starts)
	}}
}

func writeShare(w io.Writer, style report.Style, gpus []mig.GPU, r shareResult, before mig.Prediction, after sharing.Prediction, starts bool) error {
	title := gpuLine(gpus)
	if r.Node != "" {
		title = r.Node + ": " + title
	}
	fmt.Fprintln(w, style.Bold(title))
	switch {
	case !starts:
		_, err := fmt.Fprintln(w, style.Red("with this configuration the device plugin will not start, and no GPU will be allocatable"))
		return err
	case r.Config == "":
		_, err := fmt.Fprintln(w, "the node gets an empty config: nothing changes")
		return err
	case !r.Effective:
		fmt.Fprintf(w, "%s; once the node gets the config %s:\n\n", style.Yellow("nothing changes as it is"), style.Bold(r.Config))
	default:
		fmt.Fprintf(w, "config %s (%s)\n\n", style.Bold(r.Config), r.Strategy)
	}
	if err := writeResources(w, before.Resources, after.Resources, style); err != nil {
		return err
	}
	if err := writeLabels(w, before.Labels, after.Labels, style); err != nil {
		return err
	}
	for _, l := range r.Limits {
		memory := "memory unknown, give --memory-mib"
		if l.MemoryMiB > 0 {
			memory = fmt.Sprintf("%d MiB of pinned device memory", l.MemoryMiB)
		}
		fmt.Fprintf(w, "\neach MPS client on %s: %s, %d%% of the threads\n", l.Product, memory, l.ThreadPercent)
	}
	return nil
}
