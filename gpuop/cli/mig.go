package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

func newMIGCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mig",
		Short: "Plan and apply MIG partitions",
		Long: `mig works without a GPU: it lists the MIG instances that fit on a board. ` +
			`On a cluster, mig apply shows what blocks a
MIG change, and makes the change. To predict what a node will offer, use gpuop node predict. To check a config file of
the MIG manager, use gpuop lint.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMIGProfilesCommand(e), newMIGFitCommand(e), newMIGApplyCommand(e),
		replacedCommand("predict", "gpuop node predict"))
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
		_, err := fmt.Fprintln(w,
			style.Dim("\nFor one board: gpuop mig profiles MODEL. Attested placements come from a driver's output; "+
				"assumed ones are derived."))
		return err
	}}
}

func oneBoard(b mig.Board) answer {
	// all-balanced exists for every board
	balanced, _ := mig.Default(b, "all-balanced")
	result := boardResult{Board: b, Balanced: balanced.Devices.String()}
	for _, r := range mig.Maximal(b) {
		result.Maximal = append(result.Maximal, r.String())
	}
	return answer{Data: result, Text: func(w io.Writer, style check.Style) error {
		fmt.Fprintf(w, "%s: %d compute slices, %d memory slices, PCI ids %s\n\n",
			style.Bold(b.Name), b.ComputeSlices, b.MemorySlices, strings.Join(b.PCIIDs, " "))
		rows := [][]string{{"PROFILE", "MOST", "COMPUTE", "MEMORY", "SMs", "STARTS AT", "CONFIG (ALL GPUS)",
			"RESOURCE (mixed)"}}
		for _, p := range b.Profiles {
			sms := "?"
			if p.SMs > 0 {
				sms = strconv.Itoa(p.SMs)
			}
			rows = append(rows, []string{
				p.Name, strconv.Itoa(p.Max), strconv.Itoa(p.Compute), strconv.Itoa(p.Memory), sms,
				strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Starts), " ", ","), "[]"), mig.ConfigName(p.Name),
				mig.ResourceName(p.Name),
			})
		}
		if err := table(w, rows); err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%d complete layouts of standard profiles:\n  %s\n",
			len(result.Maximal), strings.Join(result.Maximal, "\n  "))
		_, err := fmt.Fprintf(w, "\nall-balanced means %s here.\n\n%s\n",
			result.Balanced, style.Dim("placements "+b.Evidence+": "+b.Source))
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
		Long: `fit searches for a placement of the MIG instances on one GPU. If there is none, it prints the reason
and exits with 1; gpuop mig profiles MODEL lists the layouts that fit. The driver may choose another placement that
fits.`,
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
				a.Report = check.Report{Findings: []check.Finding{{
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

// assumed returns a report with a note if the placements of a board are derived from similar boards. If a driver has
// printed the placements, the report is empty.
func assumed(b mig.Board) check.Report {
	if b.Evidence == "attested" {
		return check.Report{}
	}
	return check.Report{Findings: []check.Finding{{
		Check: placementsAssumed, Severity: check.Note, Subject: b.Name,
		Reason: "the placements of this board are derived from other boards; " +
			"nvidia-smi mig -lgipp prints the actual ones",
	}}}
}
