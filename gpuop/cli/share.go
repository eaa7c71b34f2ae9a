package cli

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

func newShareCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "share",
		Short: "Write and predict time-slicing and MPS configurations",
		Long: `share writes the device plugin's sharing configuration for both ways to install it, and predicts what a node
will show before the configuration is applied.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newShareGenCommand(e), newSharePredictCommand(e))
	return cmd
}

func parseRoute(word string) (sharing.Route, error) {
	switch word {
	case "operator":
		return sharing.Operator, nil
	case "plugin", "nvdp":
		return sharing.Plugin, nil
	}
	return "", fmt.Errorf("%w: --route %q, want operator (the GPU Operator) or plugin (the device plugin's own chart)", errUsage, word)
}

func newShareGenCommand(e *env) *cobra.Command {
	var route, deflt, gpu, name, namespace, version string
	cmd := &cobra.Command{
		Use:   "gen NAME=STRATEGY[:REPLICAS][,OPTION]...",
		Short: "Write a sharing configuration, one for all nodes or several to choose from by label",
		Long: `gen writes the ConfigMap for the GPU Operator (--route operator) or the values for the device plugin's own chart
(--route plugin), with the commands that apply them. Each argument is one named config:

  STRATEGY  time-slicing:N, mps:N or none
  OPTION    rename               advertise as nvidia.com/gpu.shared
            fail-multi           refuse a request for more than one (time-slicing)
            resource=NAME[*N]    share this resource in place of nvidia.com/gpu; may be repeated
            mig-strategy=WORD    write flags.migStrategy (no effect under the operator)

The first config is the default for nodes without a label, unless --default names another.`,
		Example: `  gpuop share gen any=time-slicing:4
  gpuop share gen default=none a100-80gb=time-slicing:5,rename --gpu A100-80GB
  gpuop share gen infer=mps:8 --route plugin`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := parseRoute(route)
			if err != nil {
				return err
			}
			var configs []sharing.Wanted
			var names []string
			for _, word := range args {
				w, err := sharing.ParseWanted(word)
				if err != nil {
					return err
				}
				if slices.Contains(names, w.Name) {
					return fmt.Errorf("%w: two configs are named %q", errUsage, w.Name)
				}
				configs, names = append(configs, w), append(names, w.Name)
			}
			deflt = cmp.Or(deflt, names[0])
			if _, ok, findings := sharing.Choose(r, names, "", deflt); !ok {
				return fmt.Errorf("%w: --default: %s", errUsage, findings[0].Reason)
			}
			selector := ""
			if gpu != "" {
				g, err := sharing.FindGPU(gpu)
				if err != nil {
					return fmt.Errorf("--gpu: %w", err)
				}
				selector = "nvidia.com/gpu.product=" + g.Product
			}
			v, err := e.release(version)
			if err != nil {
				return err
			}
			return e.answer(shareManifest(r, configs, deflt, selector, name, namespace, v))
		},
	}
	cmd.Flags().StringVar(&route, "route", "operator", "how the plugin is installed: operator, or plugin for its own chart (`route`)")
	cmd.Flags().StringVar(&deflt, "default", "", "the `config` for nodes without a label (the first one)")
	cmd.Flags().StringVar(&gpu, "gpu", "", "the `model` of GPU whose nodes get the config that is not the default, for the label command; with more than one the command has NODE")
	cmd.Flags().StringVar(&version, "version", "latest", "chart `release` of the operator, for the helm command")
	cmd.Flags().StringVar(&name, "configmap", "device-plugin-config", "the ConfigMap's `name`")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "the `namespace` of the release (gpu-operator, or nvidia-device-plugin for the chart)")
	return cmd
}

// shareDocument writes the configs for a route, with the commands that apply them. nodes says which
// nodes get a config, as arguments of kubectl label node.
func shareDocument(route sharing.Route, configs []sharing.Wanted, deflt string, nodes func(config string) string, name, namespace string, v chart.Version) string {
	var document strings.Builder
	if route == sharing.Operator {
		namespace = cmp.Or(namespace, "gpu-operator")
		fmt.Fprintf(&document, `# kubectl apply -f THIS-FILE
# helm upgrade gpu-operator nvidia/gpu-operator -n %[1]s --version %[4]s --reset-then-reuse-values --set devicePlugin.config.name=%[2]s --set devicePlugin.config.default=%[3]s
# After a later change of this ConfigMap: kubectl rollout restart -n %[1]s daemonset/nvidia-device-plugin-daemonset
`, namespace, name, deflt, v)
	} else {
		namespace = cmp.Or(namespace, "nvidia-device-plugin")
		fmt.Fprintf(&document, "# helm repo add nvdp https://nvidia.github.io/k8s-device-plugin\n# helm upgrade -i nvdp nvdp/nvidia-device-plugin -n %s --create-namespace --version %s -f THIS-FILE\n", namespace, sharing.ChartVersion)
	}
	for _, w := range configs {
		if w.Name != deflt {
			fmt.Fprintf(&document, "# kubectl label node %s %s=%s --overwrite\n", nodes(w.Name), sharing.ConfigLabel, w.Name)
		}
	}
	if route == sharing.Operator {
		document.Write(sharing.ConfigMap(name, namespace, configs))
	} else {
		document.Write(sharing.ChartValues(deflt, configs))
	}
	return document.String()
}

func shareManifest(route sharing.Route, configs []sharing.Wanted, deflt, selector, name, namespace string, v chart.Version) answer {
	labeled := 0
	for _, w := range configs {
		if w.Name != deflt {
			labeled++
		}
	}
	nodes := func(string) string {
		if selector == "" || labeled > 1 { // of two labels on the same nodes only the last would count
			return "NODE"
		}
		return "--selector=" + selector
	}
	document := shareDocument(route, configs, deflt, nodes, name, namespace, v)
	report := finding.Report{}
	for _, w := range configs {
		c, findings := sharing.Parse(sharing.Write(w.Sharing))
		for _, f := range append(findings, c.Dead(route)...) {
			f.Line, f.Subject = 0, w.Name+": "+f.Subject
			report.Add(f)
		}
	}
	return answer{
		Document: true, Quiet: true, Report: report, Data: map[string]string{"route": string(route), "file": document},
		Text: func(w io.Writer, _ finding.Style) error {
			_, err := io.WriteString(w, document)
			return err
		},
	}
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
			r, err := parseRoute(route)
			if err != nil {
				return err
			}
			if strategy != "" && !slices.Contains([]string{mig.StrategyNone, mig.StrategySingle, mig.StrategyMixed}, strategy) {
				return fmt.Errorf("%w: --mig-strategy %q, want none, single or mixed", errUsage, strategy)
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
func (e *env) readConfigs(files []string) ([]sharing.Named, finding.Report, error) {
	var configs []sharing.Named
	var report finding.Report
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
			return nil, report, err
		}
		found, findings := sharing.ParseAny(data, name)
		for i := range findings {
			findings[i].File = inputName(path)
		}
		for i := range found {
			found[i].File = inputName(path)
		}
		report.Add(findings...)
		configs = append(configs, found...)
	}
	return configs, report, nil
}

func share(route sharing.Route, n *node.Node, gpus []mig.GPU, configs []sharing.Named, label, deflt, migStrategy string, report finding.Report) answer {
	var names []string
	for _, c := range configs {
		names = append(names, c.Name)
	}
	name, starts, choice := sharing.Choose(route, names, label, deflt)
	report.Add(choice...)
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
				report.Add(f)
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
	report.Add(after.Findings...)
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
	return answer{Data: result, Report: report, Text: func(w io.Writer, style finding.Style) error {
		return writeShare(w, style, gpus, result, before, after, starts)
	}}
}

func writeShare(w io.Writer, style finding.Style, gpus []mig.GPU, r shareResult, before mig.Prediction, after sharing.Prediction, starts bool) error {
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
	if err := writeLabels(w, before.Labels, after.Labels, after.FromDriver, style); err != nil {
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
