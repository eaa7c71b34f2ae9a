package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/host"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

func newNodeCommand(e *env) *cobra.Command {
	root := ""
	cmd := &cobra.Command{Use: "node [--root FOLDER]", Args: exactly(0, "no arguments"),
		Short: "Check a GPU node from its files, or predict its labels and resources",
		RunE: func(*cobra.Command, []string) error {
			report, err := host.Inspect(root, time.Now())
			if err != nil {
				return err
			}
			return e.answer(answer{Report: report})
		},
	}
	cmd.Flags().StringVar(&root, "root", "/", "`folder` with the node's root file system, mounted or copied")
	e.verboseFlag(cmd)
	cmd.AddCommand(newPredictCommand(e))
	return cmd
}

// predictFlags holds the flags of node predict.
type predictFlags struct {
	gpu, nodeFile, file, config, strategy string
	count                                 int
}

func newPredictCommand(e *env) *cobra.Command {
	var f predictFlags
	cmd := &cobra.Command{Use: "predict (--gpu MODEL [--gpus N] | --node FILE) [-f FILE] [--config NAME]",
		Short: "Predict labels and allocatable resources under a sharing or MIG config",
		Args:  exactly(0, "no arguments"),
		RunE:  func(*cobra.Command, []string) error { return e.predict(&f) }}
	flags := cmd.Flags()
	flags.StringVar(&f.gpu, "gpu", "", "GPU `model`: A100-40GB, T4, or the label nvidia.com/gpu.product")
	flags.IntVar(&f.count, "gpus", 1, "`number` of GPUs of the node")
	flags.StringVar(&f.nodeFile, "node", "",
		"a `file` with the output of kubectl get node NAME -o json; - for standard input")
	flags.StringVarP(&f.file, "file", "f", "", "a device-plugin or MIG config `file`; - for standard input")
	flags.StringVar(&f.config, "config", "", "the `name` of the config that the node gets")
	flags.StringVar(&f.strategy, "strategy", "",
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

	gpus   []mig.GPU
	before mig.Prediction
	about  string // describes the config
	// noPlugin means that the device plugin does not start.
	noPlugin bool
}

type change struct {
	Before int `json:"before"`
	After  int `json:"after"`
}

// migConfigs matches the key by which a mig-parted file is recognized.
var migConfigs = regexp.MustCompile(`(?m)^["']?mig-configs["']?\s*:`)

func (e *env) predict(f *predictFlags) error {
	switch {
	case !slices.Contains([]string{"", mig.StrategyNone, mig.StrategySingle, mig.StrategyMixed}, f.strategy):
		return fmt.Errorf("--strategy %q, expected none, single or mixed", f.strategy)
	case f.count < 1 || f.count > 256:
		return fmt.Errorf("--gpus is %d, expected 1 to 256", f.count)
	}
	n, gpus, findings, err := e.node(f)
	if err != nil {
		return err
	}
	var data []byte
	if f.file != "" {
		if data, err = e.read(f.file); err != nil {
			return err
		}
	}
	p := &prediction{Node: n.Name, Sharing: "none", gpus: gpus,
		MIGStrategy: cmp.Or(f.strategy, n.Labels[mig.StrategyLabel], mig.StrategySingle)}
	p.before = mig.Predict(gpus, p.MIGStrategy, mig.Replication{})
	if resources := node.Resources(n.Status.Capacity); len(resources) > 0 {
		p.before.Resources, p.before.Labels = resources, n.Labels
	}
	var after mig.Prediction
	var found []check.Finding
	if f.file != "" && !migConfigs.Match(data) {
		after, found = p.share(data, f.file, cmp.Or(f.config, n.Labels[sharing.ConfigLabel]))
	} else if after, found, err = p.partition(data, f); err != nil {
		return err
	}
	a := answer{Data: p}
	a.Report.Findings = slices.Concat(inFile(found, f.file), after.Findings, findings)
	if p.Labels = after.Labels; p.Labels != nil {
		a.Text, p.Resources = p.write, map[string]change{}
		for _, side := range []map[string]int{p.before.Resources, after.Resources} {
			for name := range side {
				p.Resources[name] = change{p.before.Resources[name], after.Resources[name]}
			}
		}
	}
	return e.answer(a)
}

// node returns the Node from --node with the findings about it, or an empty Node. The GPUs are those of --gpu, or else
// those of the Node.
func (e *env) node(f *predictFlags) (n *corev1.Node, gpus []mig.GPU, findings []check.Finding, err error) {
	n = &corev1.Node{}
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
		var g mig.GPU
		if g, err = mig.FindGPU(f.gpu); err != nil {
			err = fmt.Errorf("--gpu: %w", err)
		}
		gpus = slices.Repeat([]mig.GPU{g}, f.count)
	case f.nodeFile != "":
		if gpus, err = node.GPUs(n); err != nil {
			err = fmt.Errorf("%s: %w; specify them with --gpu and --gpus", inputName(f.nodeFile), err)
		}
	default:
		err = errors.New("specify the GPUs with --gpu MODEL (and --gpus N) or --node FILE")
	}
	return n, gpus, findings, err
}

// inFile sets File in each finding to the name of the input at path.
func inFile(findings []check.Finding, path string) []check.Finding {
	for i := range findings {
		findings[i].File = inputName(path)
	}
	return findings
}

// share predicts the effect of a device-plugin config. data is the text of the file. wanted is the config that the node
// selects. found has the findings about the file.
func (p *prediction) share(data []byte, file, wanted string) (after mig.Prediction, found []check.Finding) {
	base := filepath.Base(inputName(file))
	configs, found := sharing.ParseAny(data, strings.TrimSuffix(base, filepath.Ext(base)))
	names := slices.Sorted(maps.Keys(configs))
	selected, starts, problem := sharing.Choose(names, wanted, "")
	p.Config, p.Effective = selected, starts && selected != ""
	if starts && selected == "" && len(configs) == 1 {
		p.Config = names[0]
	}
	config, known := configs[p.Config]
	if known {
		starts = starts && config != nil && !config.Refused
	}
	shared := sharing.Predict(p.gpus, p.MIGStrategy, config)
	if problem != nil {
		shared.Findings = append(shared.Findings, *problem)
	}
	if p.noPlugin = !starts; p.noPlugin {
		clear(shared.Resources)
	}
	p.Sharing, p.Limits, p.about = config.Strategy(), shared.Limits, " ("+config.Strategy()+")"
	return shared.Prediction, found
}

// partition predicts the effect of a MIG config. data is the text of the file. found has the findings about the file.
func (p *prediction) partition(data []byte, f *predictFlags) (after mig.Prediction, found []check.Finding, err error) {
	p.Config, p.Effective = f.config, true
	var named mig.NamedConfig
	switch {
	case f.config == "":
		return after, nil, errors.New("specify the MIG config with --config, or a sharing config with -f")
	case f.file != "":
		var config mig.Config
		if config, found = mig.ParseConfig(data); config == nil {
			return after, found, nil
		}
		var known bool
		if named, known = config.Config(f.config); !known {
			return after, nil, fmt.Errorf("%s: %w %q: it has %s", inputName(f.file), mig.ErrUnknownConfig, f.config,
				cmp.Or(strings.Join(config.Names(), ", "), "no config"))
		}
		p.about = " of " + inputName(f.file)
	case p.gpus[0].Board == nil:
		return after, nil, fmt.Errorf("%w: %s", mig.ErrNoMIG, p.gpus[0].Product)
	default:
		entry, err := mig.Default(*p.gpus[0].Board, f.config)
		if err != nil {
			return after, nil, fmt.Errorf("%w (add -f FILE if the config is in your own file)", err)
		}
		named = mig.NamedConfig{Name: f.config, Entries: []mig.Entry{entry}}
		p.about = ": " + cmp.Or(entry.Devices.String(), "no instance") + " on each GPU"
	}
	p.about += ", mig.strategy=" + p.MIGStrategy
	gpus, refused := named.Apply(p.gpus)
	return mig.Predict(gpus, p.MIGStrategy, mig.Replication{}), append(found, refused...), nil
}

func (p *prediction) write(w io.Writer, style check.Style) {
	var products []string
	for _, g := range p.gpus {
		products = append(products, g.Product)
	}
	fmt.Fprintln(w, style.Bold(strings.TrimPrefix(p.Node+": "+tally(products), ": ")))
	switch {
	case p.noPlugin:
		fmt.Fprintln(w, style.Red("the device plugin will not start with this config: no GPU will be allocatable"))
		return
	case p.Config == "":
		fmt.Fprintln(w, "the node gets an empty config: nothing changes")
		return
	case !p.Effective:
		fmt.Fprintf(w, "%s; with the config %s the node would offer:\n\n",
			style.Yellow("nothing changes yet"), style.Bold(strconv.Quote(p.Config)))
	default:
		fmt.Fprintf(w, "config %s%s\n\n", style.Bold(p.Config), p.about)
	}
	var resources, labels [][]string
	row := func(name, before, after string) []string {
		if before != after {
			after = before + " → " + style.Bold(after)
		}
		return []string{"  " + name, after}
	}
	offered := 0
	for _, name := range slices.Sorted(maps.Keys(p.Resources)) {
		c := p.Resources[name]
		offered += c.After
		resources = append(resources, row(name, strconv.Itoa(c.Before), strconv.Itoa(c.After)))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		before, known := p.before.Labels[name]
		if before = cmp.Or(before, `""`); !known {
			before = "(absent)"
		}
		labels = append(labels, row(name, before, cmp.Or(p.Labels[name], `""`)))
	}
	fmt.Fprintln(w, style.Dim("capacity and allocatable"))
	if offered == 0 {
		fmt.Fprintf(w, "  %s\n", style.Red("no GPU resource is allocatable"))
	}
	table(w, resources)
	fmt.Fprintf(w, "\n%s\n", style.Dim("labels"))
	table(w, labels)
	for _, l := range p.Limits {
		memory := "memory unknown"
		if l.MemoryMiB > 0 {
			memory = fmt.Sprintf("%d MiB of pinned device memory", l.MemoryMiB)
		}
		fmt.Fprintf(w, "\neach MPS client on %s: %s, %d%% of the threads\n", l.Product, memory, l.ThreadPercent)
	}
}
