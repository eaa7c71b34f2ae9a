package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

func newMIGCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mig",
		Short: "Plan, predict and apply MIG partitions",
		Long: `mig answers without a GPU which MIG instances a board can hold and where, and predicts the labels and allocatable
resources that a node will show. On a cluster it says what blocks a change, and makes it. gpuop lint judges a configuration
for the MIG manager.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMIGProfilesCommand(e), newMIGFitCommand(e), newMIGPredictCommand(e), newMIGApplyCommand(e))
	return cmd
}

type boardResult struct {
	mig.Board
	Balanced string   `json:"balanced"`
	Maximal  []string `json:"maximal"`
}

func newMIGProfilesCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "profiles [MODEL]",
		Short: "List the boards, or the profiles and layouts of one board",
		Example: `  gpuop mig profiles
  gpuop mig profiles A100-40GB -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return e.answer(allBoards())
			}
			b, err := mig.FindBoard(args[0])
			if err != nil {
				return err
			}
			return e.answer(oneBoard(b))
		},
	}
}

func allBoards() answer {
	rows := [][]string{{"BOARD", "TYPICAL nvidia.com/gpu.product", "SLICES", "SMALLEST", "PLACEMENTS"}}
	for _, b := range mig.Boards() {
		slices := fmt.Sprintf("%d compute, %d memory", b.ComputeSlices, b.MemorySlices)
		smallest := fmt.Sprintf("%d × %s", b.Profiles[0].Max, b.Profiles[0].Name)
		rows = append(rows, []string{b.Name, b.Typical, slices, smallest, b.Evidence})
	}
	return answer{Data: mig.Boards(), Text: func(w io.Writer, style check.Style) error {
		if err := table(w, rows); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w, style.Dim("\nFor one board: gpuop mig profiles MODEL. Attested placements were printed by a driver; assumed ones are derived."))
		return err
	}}
}

func oneBoard(b mig.Board) answer {
	// every board has an all-balanced config
	balanced, _ := mig.Default(b, "all-balanced")
	result := boardResult{Board: b, Balanced: balanced.Devices.String()}
	for _, r := range mig.Maximal(b) {
		result.Maximal = append(result.Maximal, r.String())
	}
	return answer{Data: result, Text: func(w io.Writer, style check.Style) error {
		fmt.Fprintf(w, "%s: %d compute slices, %d memory slices, PCI ids %s\n\n", style.Bold(b.Name), b.ComputeSlices, b.MemorySlices, strings.Join(b.PCIIDs, " "))
		rows := [][]string{{"PROFILE", "MOST", "COMPUTE", "MEMORY", "SMs", "STARTS AT", "CONFIG (ALL GPUS)", "RESOURCE (mixed)"}}
		for _, p := range b.Profiles {
			sms := "?"
			if p.SMs > 0 {
				sms = strconv.Itoa(p.SMs)
			}
			rows = append(rows, []string{
				p.Name, strconv.Itoa(p.Max), strconv.Itoa(p.Compute), strconv.Itoa(p.Memory), sms,
				strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Starts), " ", ","), "[]"), mig.ConfigName(p.Name), mig.ResourceName(p.Name),
			})
		}
		if err := table(w, rows); err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%d complete layouts of standard profiles:\n  %s\n", len(result.Maximal), strings.Join(result.Maximal, "\n  "))
		_, err := fmt.Fprintf(w, "\nall-balanced means %s here.\n\n%s\n", result.Balanced, style.Dim("placements "+b.Evidence+": "+b.Source))
		return err
	}}
}

type fitResult struct {
	Board   string     `json:"board"`
	Request string     `json:"request"`
	Fits    bool       `json:"fits"`
	Layout  mig.Layout `json:"layout,omitempty"`
}

func newMIGFitCommand(e *env) *cobra.Command {
	var gpu string
	cmd := &cobra.Command{
		Use:   "fit --gpu MODEL PROFILE[=N]...",
		Short: "Place instances on one GPU, or explain why they do not fit",
		Long: `Search a placement for MIG instances on one GPU. If there is none, the reason is printed and the exit code is 1;
gpuop mig profiles MODEL lists what fits. The driver may choose another placement that is as good.`,
		Example: `  gpuop mig fit --gpu H100-80GB 3g.40gb 2g.20gb 1g.10gb=2`,
		Args:    cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := mig.FindBoard(gpu)
			if err != nil {
				return fmt.Errorf("--gpu: %w", err)
			}
			request, err := mig.ParseRequest(args)
			if err != nil {
				return err
			}
			result := fitResult{Board: b.Name, Request: request.String()}
			a := answer{Data: &result, Report: assumed(b), Quiet: true}
			if result.Layout, err = mig.Fit(b, request); err != nil {
				a.Report = check.Report{Rows: []check.Finding{{
					Check: mig.DoesNotFit, Severity: check.Error, Subject: result.Request, Reason: err.Error(),
					Fix: "gpuop mig profiles " + gpu + " lists what fits",
				}}}
				return e.answer(a)
			}
			result.Fits = true
			a.Text = func(w io.Writer, style check.Style) error {
				fmt.Fprintf(w, "%s %s\n\n", style.Bold(b.Name+": "+result.Request), style.Green("fits"))
				rows := [][]string{{"PROFILE", "STARTS AT", "MEMORY SLICES"}}
				for _, i := range result.Layout {
					rows = append(rows, []string{i.Profile, strconv.Itoa(i.Start), strconv.Itoa(i.Size)})
				}
				return table(w, rows)
			}
			return e.answer(a)
		},
	}
	cmd.Flags().StringVar(&gpu, "gpu", "", "GPU `model`: A100-40GB, or the value of the nvidia.com/gpu.product label")
	_ = cmd.MarkFlagRequired("gpu")
	return cmd
}

// assumed notes that a board's placements come from its sibling models, not from a driver's output.
func assumed(b mig.Board) check.Report {
	if b.Evidence == "attested" {
		return check.Report{}
	}
	return check.Report{Rows: []check.Finding{{
		Check: placementsAssumed, Severity: check.Note, Subject: b.Name,
		Reason: "the placements of this board are derived from other boards; nvidia-smi mig -lgipp prints the actual ones",
	}}}
}

type predictionResult struct {
	Strategy  string            `json:"strategy"`
	Resources map[string]int    `json:"resources"`
	Labels    map[string]string `json:"labels"`
}

func newMIGPredictCommand(e *env) *cobra.Command {
	var h hardware
	var file, config, strategy string
	cmd := &cobra.Command{
		Use:   "predict (--gpu MODEL [--gpus N] | --node FILE) --config NAME [-f FILE]",
		Short: "Predict labels and allocatable resources of a partition",
		Long: `predict says which labels and resources a node will show once a MIG config is applied, under the
strategy that --strategy names. The config is one of a mig-parted file (-f), or one of the operator's
default names (all-balanced, all-1g.10gb, …).`,
		Example: `  gpuop mig predict --gpu A100-40GB --gpus 8 --config all-balanced
  gpuop mig predict --node gpu-1.json -f mig.yaml --config notebooks --strategy mixed`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkStrategy("--strategy", strategy); err != nil {
				return err
			}
			n, gpus, findings, err := h.read(e)
			if err != nil {
				return err
			}
			answered := check.Report{Rows: findings}
			named, title, found, err := e.partition(gpus[0], file, config)
			if err != nil {
				return err
			}
			if named.Name != "" {
				after, refused := named.Apply(gpus)
				gpus, found = after, append(found, refused...)
			}
			for _, f := range found {
				if file != "" {
					f.File = inputName(file)
				}
				answered.Add(f)
			}
			return e.answer(predicted(gpus, title, cmp.Or(strategy, n.Labels["nvidia.com/mig.strategy"], mig.StrategySingle), answered))
		},
	}
	h.flags(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "a mig-parted `file`; - for standard input")
	cmd.Flags().StringVar(&config, "config", "", "the `name` of the config, as in the nvidia.com/mig.config label")
	_ = cmd.MarkFlagRequired("config")
	cmd.Flags().StringVar(&strategy, "strategy", "", "the `strategy`: none, single or mixed (the node's label nvidia.com/mig.strategy, or single)")
	return cmd
}

// partition returns the config that the user selected, a title for it, and findings about its file.
func (e *env) partition(gpu mig.GPU, file, config string) (mig.Named, string, []check.Finding, error) {
	none := mig.Named{}
	switch {
	case file == "" && gpu.Board == nil:
		return none, "", nil, fmt.Errorf("%w: %s has no MIG", mig.ErrUnknownGPU, gpu.Product)
	case file == "":
		entry, err := mig.Default(*gpu.Board, config)
		if err != nil {
			return none, "", nil, fmt.Errorf("%w; add -f FILE if the config is in your own file", err)
		}
		title := config + " of the default configuration, each " + cmp.Or(entry.Devices.String(), "without an instance")
		return mig.Named{Name: config, Entries: []mig.Entry{entry}}, title, nil, nil
	}
	data, err := e.read(file)
	if err != nil {
		return none, "", nil, err
	}
	c, findings := mig.ParseConfig(data)
	title := config + " of " + inputName(file)
	if c == nil {
		return none, title, findings, nil
	}
	if named, ok := c.Config(config); ok {
		return named, title, findings, nil
	}
	var names []string
	for _, n := range c.Named {
		names = append(names, n.Name)
	}
	return none, "", nil, fmt.Errorf("%s: %w %q: it has %s", inputName(file), mig.ErrUnknownConfig, config, strings.Join(names, ", "))
}

// checkStrategy rejects unknown MIG strategies. An empty word is accepted.
func checkStrategy(flag, word string) error {
	if slices.Contains([]string{"", mig.StrategyNone, mig.StrategySingle, mig.StrategyMixed}, word) {
		return nil
	}
	return fmt.Errorf("%w: %s %q, expected none, single or mixed", errUsage, flag, word)
}

func predicted(gpus []mig.GPU, title, strategy string, found check.Report) answer {
	p := mig.Predict(gpus, strategy, mig.Replication{})
	found.Add(p.Findings...)
	return answer{Data: predictionResult{strategy, p.Resources, p.Labels}, Report: found, Text: func(w io.Writer, style check.Style) error {
		fmt.Fprintf(w, "%s, %s\n\n%s\n", style.Bold(gpuLine(gpus)), title, style.Bold("mig.strategy="+strategy))
		return writeNode(w, style, mig.Prediction{}, p)
	}}
}

// writeNode writes the resources and labels of a node, with their previous values if known.
func writeNode(w io.Writer, style check.Style, before, after mig.Prediction) error {
	fmt.Fprintln(w, style.Dim("capacity and allocatable"))
	if len(after.Resources) == 0 {
		fmt.Fprintf(w, "  %s\n", style.Red("no GPU resource is allocatable"))
	}
	if err := writeChanges(w, style, before.Resources, after.Resources); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", style.Dim("labels"))
	return writeChanges(w, style, before.Labels, after.Labels)
}

func writeChanges[V comparable](w io.Writer, style check.Style, before, after map[string]V) error {
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		value := cmp.Or(fmt.Sprint(after[name]), `""`)
		old, known := before[name]
		switch {
		case before == nil || known && old == after[name]:
		case known:
			value = cmp.Or(fmt.Sprint(old), `""`) + " → " + style.Bold(value)
		default:
			value = "(absent) → " + style.Bold(value)
		}
		rows = append(rows, []string{"  " + name, value})
	}
	return table(w, rows)
}
