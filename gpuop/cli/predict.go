package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// predictFlags holds the flags of node predict.
type predictFlags struct {
	gpu, nodeFile, file, config, strategy string
	count                                 int
}

func newPredictCommand(e *env) *cobra.Command {
	var p predictFlags
	cmd := &cobra.Command{
		Use:   "predict (--gpu MODEL [--gpus N] | --node FILE) [-f FILE] [--config NAME]",
		Short: "Predict labels and allocatable resources under a sharing or MIG config",
		Long: `predict prints the labels and resources that a node will have with another config, and the limits of MPS
clients.

-f is a device-plugin config, a ConfigMap with several of them, or a mig-parted file. Without -f, --config is one of the
default MIG configs (all-balanced, all-1g.10gb, …). Without --config, the node's label selects the sharing config. A
sharing config that is not in a ConfigMap is named after its file.`,
		Example: `  gpuop node predict -f sharing.yaml --gpu A100-80GB --gpus 8 --config sharing
  kubectl get node gpu-1 -o json | gpuop node predict -f configmap.yaml --config any --node -
  gpuop node predict --gpu A100-40GB --gpus 8 --config all-balanced
  gpuop node predict -f mig.yaml --node gpu-1.json --config notebooks --strategy mixed`,
		Args: exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error { return e.predict(&p) },
	}
	flags := cmd.Flags()
	flags.StringVar(&p.gpu, "gpu", "", "GPU `model`: A100-40GB, T4, or the label nvidia.com/gpu.product")
	flags.IntVar(&p.count, "gpus", 1, "`number` of GPUs of the node")
	flags.StringVar(&p.nodeFile, "node", "",
		"a `file` with the output of kubectl get node NAME -o json; - for standard input")
	flags.StringVarP(&p.file, "file", "f", "", "a device-plugin or MIG config `file`; - for standard input")
	flags.StringVar(&p.config, "config", "", "the `name` of the config that the node gets")
	flags.StringVar(&p.strategy, "strategy", "",
		"MIG `strategy`: none, single, mixed (default: the node's label, or single)")
	return cmd
}

// prediction is the result of node predict.
type prediction struct {
	Node   string `json:"node,omitempty"`
	Config string `json:"config"`
	// Effective is false if the node selects no sharing config, or one that the file does not have.
	Effective   bool              `json:"effective"`
	MIGStrategy string            `json:"migStrategy"`
	Sharing     string            `json:"sharing"`
	Resources   map[string]change `json:"resources"`
	Labels      map[string]string `json:"labels"`
	Limits      []sharing.Limits  `json:"limits,omitempty"`

	before, after mig.Prediction
	// headline describes the GPUs, and about describes the config. noPlugin means that the device plugin does not
	// start.
	headline, about string
	noPlugin        bool
}

type change struct {
	Before int `json:"before"`
	After  int `json:"after"`
}

// migConfigs matches the key by which a mig-parted file is recognized.
var migConfigs = regexp.MustCompile(`(?m)^["']?mig-configs["']?\s*:`)

func (e *env) predict(f *predictFlags) error {
	if !slices.Contains([]string{"", mig.StrategyNone, mig.StrategySingle, mig.StrategyMixed}, f.strategy) {
		return fmt.Errorf("%w: --strategy %q, expected none, single or mixed", errUsage, f.strategy)
	}
	n, gpus, findings, err := f.read(e)
	if err != nil {
		return err
	}
	var data []byte
	if f.file != "" {
		if data, err = e.read(f.file); err != nil {
			return err
		}
	}
	p := newPrediction(n, gpus, cmp.Or(f.strategy, n.Labels[mig.StrategyLabel], mig.StrategySingle))
	var found []check.Finding
	if f.file != "" && !migConfigs.Match(data) {
		found = p.share(n, gpus, data, f)
	} else if found, err = p.partition(gpus, data, f); err != nil {
		return err
	}
	a := answer{Data: p, Report: check.Report{Findings: append(found, findings...)}}
	if p.Labels != nil {
		a.Text = p.write
	}
	return e.answer(a)
}

// newPrediction returns a prediction that has only the state before the change. This is the state of the Node or, if
// the Node lists no GPU resources, the state of gpus without sharing.
func newPrediction(n *corev1.Node, gpus []mig.GPU, strategy string) *prediction {
	p := &prediction{Node: n.Name, MIGStrategy: strategy, Sharing: "none", headline: gpuLine(gpus)}
	if n.Name != "" {
		p.headline = n.Name + ": " + p.headline
	}
	p.before = mig.Predict(gpus, strategy, mig.Replication{})
	if resources := node.Resources(n.Status.Capacity); len(resources) > 0 {
		p.before.Resources, p.before.Labels = resources, n.Labels
	}
	return p
}

// setAfter sets the state of the node after the change, and compares it with the state before.
func (p *prediction) setAfter(after mig.Prediction) {
	if p.noPlugin {
		after.Resources = map[string]int{}
	}
	p.after, p.Labels, p.Resources = after, after.Labels, map[string]change{}
	for _, side := range []mig.Prediction{p.before, after} {
		for resource := range side.Resources {
			p.Resources[resource] = change{p.before.Resources[resource], after.Resources[resource]}
		}
	}
}

// share predicts the effect of a device-plugin config. data is the text of the file.
func (p *prediction) share(n *corev1.Node, gpus []mig.GPU, data []byte, f *predictFlags) []check.Finding {
	name := inputName(f.file)
	configs, found := sharing.ParseAny(data, strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)))
	found = inFile(found, f.file)
	var names []string
	for _, c := range configs {
		names = append(names, c.Name)
	}
	selected, starts, problem := sharing.Choose(names, cmp.Or(f.config, n.Labels[sharing.ConfigLabel]), "")
	if problem != nil {
		found = append(found, *problem)
	}
	p.Config, p.Effective = selected, starts && selected != ""
	if starts && selected == "" && len(configs) == 1 {
		p.Config = configs[0].Name
	}
	var config *sharing.Config
	for _, c := range configs {
		if c.Name == p.Config {
			config = c.Config
			starts = starts && config != nil && !config.Refused
		}
	}
	after := sharing.Predict(gpus, p.MIGStrategy, config)
	p.noPlugin, p.Sharing, p.Limits, p.about = !starts, config.Strategy(), after.Limits, " ("+config.Strategy()+")"
	p.setAfter(after.Prediction)
	return append(found, after.Findings...)
}

// partition predicts the effect of a MIG config. data is the text of the file.
func (p *prediction) partition(gpus []mig.GPU, data []byte, f *predictFlags) ([]check.Finding, error) {
	if f.config == "" {
		return nil, fmt.Errorf("%w: specify the MIG config with --config, or a sharing config with -f", errUsage)
	}
	p.Config = f.config
	var named mig.NamedConfig
	var found []check.Finding
	if f.file == "" {
		if gpus[0].Board == nil {
			return nil, fmt.Errorf("%w: %s", mig.ErrNoMIG, gpus[0].Product)
		}
		entry, err := mig.Default(*gpus[0].Board, f.config)
		if err != nil {
			return nil, fmt.Errorf("%w; add -f FILE if the config is in your own file", err)
		}
		named = mig.NamedConfig{Name: f.config, Entries: []mig.Entry{entry}}
		p.about = ": " + cmp.Or(entry.Devices.String(), "no instance") + " on each GPU"
	} else {
		config, problems := mig.ParseConfig(data)
		if found = problems; config == nil {
			return inFile(found, f.file), nil
		}
		var known bool
		if named, known = config.Config(f.config); !known {
			return nil, fmt.Errorf("%s: %w %q: it has %s",
				inputName(f.file), mig.ErrUnknownConfig, f.config,
				cmp.Or(strings.Join(config.Names(), ", "), "no config"))
		}
		p.about = " of " + inputName(f.file)
	}
	gpus, refused := named.Apply(gpus)
	after := mig.Predict(gpus, p.MIGStrategy, mig.Replication{})
	p.Effective = true
	p.about += ", mig.strategy=" + p.MIGStrategy
	p.setAfter(after)
	return append(inFile(append(found, refused...), f.file), after.Findings...), nil
}

// inFile sets File in each finding to the name of the input at path. If path is empty, it clears File.
func inFile(findings []check.Finding, path string) []check.Finding {
	for i := range findings {
		findings[i].File = inputName(path)
	}
	return findings
}

func (p *prediction) write(w io.Writer, style check.Style) error {
	fmt.Fprintln(w, style.Bold(p.headline))
	switch {
	case p.noPlugin:
		_, err := fmt.Fprintln(w,
			style.Red("the device plugin will not start with this config: no GPU will be allocatable"))
		return err
	case p.Config == "":
		_, err := fmt.Fprintln(w, "the node gets an empty config: nothing changes")
		return err
	case !p.Effective:
		fmt.Fprintf(w, "%s; with the config %s the node would offer:\n\n",
			style.Yellow("nothing changes yet"), style.Bold(strconv.Quote(p.Config)))
	default:
		fmt.Fprintf(w, "config %s%s\n\n", style.Bold(p.Config), p.about)
	}
	fmt.Fprintln(w, style.Dim("capacity and allocatable"))
	if len(p.after.Resources) == 0 {
		fmt.Fprintf(w, "  %s\n", style.Red("no GPU resource is allocatable"))
	}
	before, after := map[string]int{}, map[string]int{}
	for name, c := range p.Resources {
		before[name], after[name] = c.Before, c.After
	}
	if err := writeChanges(w, style, before, after); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", style.Dim("labels"))
	if err := writeChanges(w, style, p.before.Labels, p.after.Labels); err != nil {
		return err
	}
	for _, l := range p.Limits {
		memory := "memory unknown"
		if l.MemoryMiB > 0 {
			memory = fmt.Sprintf("%d MiB of pinned device memory", l.MemoryMiB)
		}
		fmt.Fprintf(w, "\neach MPS client on %s: %s, %d%% of the threads\n", l.Product, memory, l.ThreadPercent)
	}
	return nil
}

func writeChanges[V comparable](w io.Writer, style check.Style, before, after map[string]V) error {
	var lines [][]string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		value := cmp.Or(fmt.Sprint(after[name]), `""`)
		old, known := before[name]
		switch {
		case known && old == after[name]:
		case known:
			value = cmp.Or(fmt.Sprint(old), `""`) + " → " + style.Bold(value)
		default:
			value = "(absent) → " + style.Bold(value)
		}
		lines = append(lines, []string{"  " + name, value})
	}
	return table(w, lines)
}

// read returns the Node from --node, and the findings about it. Without --node, n is an empty Node. The GPUs are those
// of --gpu, or else those of the Node.
func (f *predictFlags) read(e *env) (n *corev1.Node, gpus []mig.GPU, findings []check.Finding, err error) {
	n = &corev1.Node{}
	if f.count < 1 || f.count > 256 {
		return nil, nil, nil, fmt.Errorf("%w: --gpus is %d, expected 1 to 256", errUsage, f.count)
	}
	if f.nodeFile != "" {
		data, err := e.read(f.nodeFile)
		if err != nil {
			return nil, nil, nil, err
		}
		if n, err = node.Parse(data); err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", inputName(f.nodeFile), err)
		}
		findings = inFile(node.Check(n), f.nodeFile)
	}
	switch {
	case f.gpu != "":
		g, err := mig.FindGPU(f.gpu)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--gpu: %w", err)
		}
		gpus = slices.Repeat([]mig.GPU{g}, f.count)
	case f.nodeFile != "":
		if gpus, err = node.GPUs(n); err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w; specify them with --gpu and --gpus", inputName(f.nodeFile), err)
		}
	default:
		return nil, nil, nil,
			fmt.Errorf("%w: specify the GPUs with --gpu MODEL (and --gpus N) or --node FILE", errUsage)
	}
	return n, gpus, findings, nil
}

// gpuLine describes GPUs, such as "8 × NVIDIA-A100-SXM4-40GB".
func gpuLine(gpus []mig.GPU) string {
	var parts []string
	for i := 0; i < len(gpus); {
		n := 1
		for i+n < len(gpus) && gpus[i+n].Product == gpus[i].Product {
			n++
		}
		parts = append(parts, fmt.Sprintf("%d × %s", n, gpus[i].Product))
		i += n
	}
	return strings.Join(parts, ", ")
}
