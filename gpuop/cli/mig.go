package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

func newMIGProfilesCommand(e *env) *cobra.Command {
	return &cobra.Command{Use: "profiles [MODEL]", Args: cobra.MaximumNArgs(1),
		Short: "List the boards, or the profiles and layouts of one board",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return e.answer(answer{Data: mig.Boards(), Text: writeBoards})
			}
			b, err := mig.FindBoard(args[0])
			if err != nil {
				return err
			}
			balanced, _ := mig.Default(b, "all-balanced") // it exists for every board
			result := boardResult{Board: b, Balanced: balanced.Devices.String()}
			for _, r := range mig.Maximal(b) {
				result.Maximal = append(result.Maximal, r.String())
			}
			return e.answer(answer{Data: result, Text: result.write})
		},
	}
}

func writeBoards(w io.Writer, style check.Style) {
	rows := [][]string{{"BOARD", "TYPICAL nvidia.com/gpu.product", "SLICES", "SMALLEST", "PLACEMENTS"}}
	for _, b := range mig.Boards() {
		slices := fmt.Sprintf("%d compute, %d memory", b.ComputeSlices, b.MemorySlices)
		smallest := fmt.Sprintf("%d × %s", b.Profiles[0].Max, b.Profiles[0].Name)
		rows = append(rows, []string{b.Name, b.Typical, slices, smallest, b.Evidence})
	}
	table(w, rows)
	fmt.Fprintln(w, style.Dim("\nFor one board: gpuop mig profiles MODEL. Attested placements come from a driver's "+
		"output; assumed ones are derived."))
}

type boardResult struct {
	mig.Board
	Balanced string   `json:"balanced"`
	Maximal  []string `json:"maximal"`
}

func (b *boardResult) write(w io.Writer, style check.Style) {
	fmt.Fprintf(w, "%s: %d compute slices, %d memory slices, PCI ids %s\n\n",
		style.Bold(b.Name), b.ComputeSlices, b.MemorySlices, strings.Join(b.PCIIDs, " "))
	rows := [][]string{{"PROFILE", "MOST", "COMPUTE", "MEMORY", "SMs", "STARTS AT", "CONFIG (ALL GPUS)",
		"RESOURCE (mixed)"}}
	for _, p := range b.Profiles {
		sms := "?"
		if p.SMs > 0 {
			sms = strconv.Itoa(p.SMs)
		}
		starts := strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Starts), " ", ","), "[]")
		rows = append(rows, []string{p.Name, strconv.Itoa(p.Max), strconv.Itoa(p.Compute), strconv.Itoa(p.Memory), sms,
			starts, mig.ConfigName(p.Name), mig.ResourceName(p.Name)})
	}
	table(w, rows)
	fmt.Fprintf(w, "\n%d complete layouts of standard profiles:\n  %s\n\nall-balanced means %s here.\n\n%s\n",
		len(b.Maximal), strings.Join(b.Maximal, "\n  "), b.Balanced,
		style.Dim("placements "+b.Evidence+": "+b.Source))
}

type fitResult struct {
	Board   string         `json:"board"`
	Request string         `json:"request"`
	Fits    bool           `json:"fits"`
	Layout  []mig.Instance `json:"layout,omitempty"`
}

func (r *fitResult) write(w io.Writer, style check.Style) {
	fmt.Fprintf(w, "%s %s\n\n", style.Bold(r.Board+": "+r.Request), style.Green("fits"))
	rows := [][]string{{"PROFILE", "STARTS AT", "MEMORY SLICES"}}
	for _, i := range r.Layout {
		rows = append(rows, []string{i.Profile, strconv.Itoa(i.Start), strconv.Itoa(i.Size)})
	}
	table(w, rows)
}

func newMIGFitCommand(e *env) *cobra.Command {
	gpu := ""
	cmd := &cobra.Command{Use: "fit --gpu MODEL PROFILE[=N]...",
		Short: "Place instances on one GPU, or explain why they do not fit",
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := mig.FindBoard(gpu)
			if err != nil {
				return fmt.Errorf("--gpu: %w", err)
			}
			request, err := mig.ParseRequest(args)
			if err != nil {
				return err
			}
			result := &fitResult{Board: b.Name, Request: request.String()}
			a := answer{Data: result}
			if result.Layout, err = mig.Fit(b, request); err != nil {
				a.Report.Add(check.Finding{Check: mig.DoesNotFit, Severity: check.Error, Subject: result.Request,
					Reason: err.Error(), Fix: "gpuop mig profiles " + gpu + " lists what fits"})
				return e.answer(a)
			}
			result.Fits, a.Text = true, result.write
			if b.Evidence != "attested" {
				a.Report.Add(check.Finding{Check: placementsAssumed, Severity: check.Note, Subject: b.Name,
					Reason: "placements derived from other boards; nvidia-smi mig -lgipp prints the actual ones"})
			}
			return e.answer(a)
		},
	}
	cmd.Flags().StringVar(&gpu, "gpu", "", "GPU `model`: A100-40GB, or the value of the nvidia.com/gpu.product label")
	_ = cmd.MarkFlagRequired("gpu")
	return cmd
}

func newMIGApplyCommand(e *env) *cobra.Command {
	var apply, force bool
	cmd := &cobra.Command{Use: "apply NODE CONFIG", Args: exactly(2, "a node and the name of a MIG config"),
		Short: "Show what would block a MIG change; with --apply, start the change"}
	c := e.connect(cmd)
	cmd.Flags().BoolVar(&apply, "apply", false, "set the label nvidia.com/mig.config on the node")
	cmd.Flags().BoolVar(&force, "force", false, "set the label even if problems were found")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case force && !apply:
			return errors.New("--force needs --apply")
		case apply && c.from != "":
			return errors.New("--apply cannot be combined with --from: it needs a live cluster")
		}
		node, config := args[0], args[1]
		s, err := e.state(cmd.Context(), c, judge.VerifyKinds()...)
		if err != nil {
			return err
		}
		findings, err := judge.Prepare(s, judge.Options{Table: e.table}, node, config)
		if err != nil {
			return err
		}
		r := clusterReport(s, findings)
		f := check.Finding{
			Check: migLabel, Severity: check.Note, Node: node, Subject: judge.LabelMIG,
			Reason: "dry run: add --apply to set the label",
			Fix:    fmt.Sprintf("kubectl label node %s %s=%s --overwrite", node, judge.LabelMIG, config),
		}
		switch {
		case apply && r.AtLeast(check.Error) && !force:
			f.Severity, f.Reason, f.Fix = check.Error,
				"the label was not set because of the problems above; add --force to set it anyway", ""
		case apply:
			client, err := cluster.Open(c.Options)
			if err != nil {
				return err
			}
			if err := client.Label(cmd.Context(), node, judge.LabelMIG, config); err != nil {
				return err
			}
			f.Reason, f.Fix = "the label was set to "+config, "gpuop verify --wait --node "+node
		}
		r.Add(f)
		return e.answer(answer{Report: r})
	}
	return cmd
}
