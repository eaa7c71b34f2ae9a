package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

func newShareCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "share",
		Short: "Predict time-slicing and MPS configurations",
		Long: `share predicts what a node of the GPU Operator will show before a sharing configuration of the device plugin is applied.
gpuop values gen PLATFORM time-slicing=4 writes one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSharePredictCommand(e))
	return cmd
}

type shareResult struct {
	Node      string            `json:"node,omitempty"`
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
	var file, deflt, strategy string
	cmd := &cobra.Command{
		Use:   "predict -f FILE (--gpu MODEL [--gpus N] | --node FILE)",
		Short: "Predict labels, capacity and MPS limits of a sharing configuration",
		Long: `predict reads a device-plugin config, or a ConfigMap with several, chooses the one that the node gets as the config
manager would, and shows what the node will show: resources, labels, and under MPS the limits of each client.
A config that is not in a ConfigMap is named after its file.`,
		Example: `  gpuop share predict -f sharing.yaml --gpu A100-80GB --gpus 8 --default sharing
  kubectl get node gpu-1 -o json | gpuop share predict -f configmap.yaml --default any --node -`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkStrategy("--mig-strategy", strategy); err != nil {
				return err
			}
			data, err := e.read(file)
			if err != nil {
				return err
			}
			configs, found := sharing.ParseAny(data, strings.TrimSuffix(filepath.Base(inputName(file)), filepath.Ext(file)))
			for i := range found {
				found[i].File = inputName(file)
			}
			n, gpus, findings, err := h.read(e)
			if err != nil {
				return err
			}
			return e.answer(share(n, gpus, configs, deflt, strategy, check.Report{Rows: append(found, findings...)}))
		},
	}
	h.flags(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "a `file` with a device-plugin config or a ConfigMap of them; - for standard input")
	_ = cmd.MarkFlagRequired("file")
	cmd.Flags().StringVar(&deflt, "default", "", "the `value` of devicePlugin.config.default")
	cmd.Flags().StringVar(&strategy, "mig-strategy", "", "the MIG `strategy` (the node's label nvidia.com/mig.strategy, or single)")
	return cmd
}

func share(n *corev1.Node, gpus []mig.GPU, configs []sharing.Named, deflt, migStrategy string, found check.Report) answer {
	var names []string
	for _, c := range configs {
		names = append(names, c.Name)
	}
	name, starts, problem := sharing.Choose(names, n.Labels[sharing.ConfigLabel], deflt)
	if problem != nil {
		found.Add(*problem)
	}
	result := shareResult{Node: n.Name, Config: name, Effective: starts && name != "", Resources: map[string]change{}}
	if starts && name == "" && len(configs) == 1 {
		result.Config = configs[0].Name
	}
	var config *sharing.Config
	for _, c := range configs {
		if c.Name == result.Config {
			config = c.Config
			starts = starts && config != nil && !config.Refused
		}
	}
	migStrategy = cmp.Or(migStrategy, n.Labels["nvidia.com/mig.strategy"], mig.StrategySingle)
	before := mig.Predict(gpus, migStrategy, mig.Replication{})
	if resources := node.GPUResources(n); len(resources) > 0 {
		before.Resources, before.Labels = resources, n.Labels
	}
	after := sharing.Predict(gpus, migStrategy, config)
	found.Add(after.Findings...)
	if !starts {
		after.Resources = map[string]int{}
	}
	for _, resource := range slices.Concat(slices.Collect(maps.Keys(before.Resources)), slices.Collect(maps.Keys(after.Resources))) {
		before.Resources[resource] += 0 // so that removed resources are shown as 0
		after.Resources[resource] += 0
		result.Resources[resource] = change{before.Resources[resource], after.Resources[resource]}
	}
	result.Strategy, result.Labels, result.Limits = config.Strategy(), after.Labels, after.Limits
	return answer{Data: result, Report: found, Text: func(w io.Writer, style check.Style) error {
		return writeShare(w, style, gpus, result, before, after, starts)
	}}
}

func writeShare(w io.Writer, style check.Style, gpus []mig.GPU, r shareResult, before mig.Prediction, after sharing.Prediction, starts bool) error {
	title := gpuLine(gpus)
	if r.Node != "" {
		title = r.Node + ": " + title
	}
	fmt.Fprintln(w, style.Bold(title))
	switch {
	case !starts:
		_, err := fmt.Fprintln(w, style.Red("the device plugin will not start with this configuration, and no GPU will be allocatable"))
		return err
	case r.Config == "":
		_, err := fmt.Fprintln(w, "the node gets an empty config: nothing changes")
		return err
	case !r.Effective:
		fmt.Fprintf(w, "%s; once the node gets the config %s:\n\n", style.Yellow("nothing changes as it is"), style.Bold(r.Config))
	default:
		fmt.Fprintf(w, "config %s (%s)\n\n", style.Bold(r.Config), r.Strategy)
	}
	if err := writeNode(w, style, before, after.Prediction); err != nil {
		return err
	}
	for _, l := range r.Limits {
		memory := "memory unknown"
		if l.MemoryMiB > 0 {
			memory = fmt.Sprintf("%d MiB of pinned device memory", l.MemoryMiB)
		}
		fmt.Fprintf(w, "\neach MPS client on %s: %s, %d%% of the threads\n", l.Product, memory, l.ThreadPercent)
	}
	return nil
}
