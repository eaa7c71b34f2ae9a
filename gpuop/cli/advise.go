package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/advise"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/telemetry"
)

func newAdviseCommand(e *env) *cobra.Command {
	var m measured
	var o advise.Options
	var version, namespace string
	var configs, rules bool
	cmd := &cobra.Command{
		Use:   "advise (--prometheus URL [--window 7d] | --scrape URL|FILE...)",
		Short: "Recommend how to share GPUs, from what pods really used",
		Long: `advise reads what the pods on GPUs used over a window, and recommends for each model of GPU which way of sharing
holds them (none, streams, MPS, time-slicing, MIG, vGPU), how many GPUs that frees, what is at risk, and the
configuration. Each recommendation stands above its evidence; what is not known is named and lowers the confidence.

It reads the series of this project's exporter in both vocabularies, and those of NVIDIA's dcgm-exporter, which has no
shares of pods on shared GPUs. A scrape sees this moment alone: two samples of an address, one of a file.

Nothing is written and nothing is changed. --config prints the configurations alone, as files for kubectl apply.
--rules prints the decision table. Exit codes: 0 things are well as they are, 1 there is something to change, 2 bad
input or no telemetry of GPUs in it, 3 no answer.`,
		Example: `  gpuop advise --prometheus http://prometheus:9090 --window 7d
  gpuop advise --prometheus http://prometheus:9090 --node gpu-1 --config --out advised.yaml
  gpuop advise --scrape http://gpu-1:9400/metrics --scrape http://gpu-2:9400/metrics
  gpuop advise --rules`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rules {
				return e.answer(decisionTable())
			}
			v, err := e.release(version)
			if err != nil {
				return err
			}
			u, err := m.usage(cmd.Context(), e)
			if err != nil {
				return err
			}
			a := advise.Judge(u, o)
			if len(a.Models) == 0 {
				return fmt.Errorf("%w: %s has no GPU that --node and --namespace select", errUsage, u.Source)
			}
			return e.answer(advised(a, namespace, v, configs))
		},
	}
	m.flags(cmd)
	cmd.Flags().StringVar(&m.window, "window", "", "how long the `window` is (7d)")
	cmd.Flags().DurationVar(&m.apart, "apart", 10*time.Second, "how long after the first scrape of an address the second is")
	cmd.Flags().StringArrayVar(&o.Nodes, "node", nil, "only GPUs of this `node`, by the label hostname; may be repeated")
	cmd.Flags().StringArrayVarP(&o.Namespaces, "namespace", "n", nil, "only GPUs with a pod of this `namespace`; may be repeated")
	cmd.Flags().BoolVar(&o.Trusted, "trusted", false, "pods of different namespaces trust each other")
	cmd.Flags().BoolVar(&configs, "config", false, "print the configurations alone")
	cmd.Flags().BoolVar(&rules, "rules", false, "print the decision table")
	cmd.Flags().StringVar(&version, "version", "latest", "chart `release` of the operator, for the helm command")
	cmd.Flags().StringVar(&namespace, "operator-namespace", "gpu-operator", "the `namespace` of the operator's release")
	return cmd
}

// decisionTable is what --rules prints.
func decisionTable() answer {
	rules := advise.Rules()
	return answer{Data: rules, Text: func(w io.Writer, style finding.Style) error {
		rows := [][]string{{"RULE", "WHEN", "RECOMMENDS", "RESTS ON (gpuop explain compare)"}}
		for _, r := range rules {
			mode, cell := string(r.Mode), "-"
			if r.Otherwise != "" {
				mode += ", without MIG " + string(r.Otherwise)
			}
			if r.Property != "" {
				cell = r.Property + ", " + r.Way
			}
			rows = append(rows, []string{r.ID, r.When, mode, cell})
		}
		if err := table(w, rows); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w, style.Dim("\nThe first rule that holds decides."))
		return err
	}}
}

// adviceResult is the advice with the configurations.
type adviceResult struct {
	*advise.Advice
	Configurations []configuration `json:"configurations"`
}

type configuration struct {
	Name string `json:"name"`
	// Checks are commands that judge it again.
	Checks []string `json:"checks,omitempty"`
	File   string   `json:"file"`
}

func advised(a *advise.Advice, namespace string, v chart.Version, alone bool) answer {
	result := adviceResult{Advice: a, Configurations: []configuration{}}
	var report finding.Report
	for i := range a.Models {
		model := &a.Models[i]
		for _, text := range model.Exposed {
			report.Add(finding.Finding{ID: "advise-namespaces", Severity: finding.Warning, Subject: model.Product, Reason: text, Fix: "separate them with MIG, or by nodes; --trusted says that they trust each other", Source: "k8s-device-plugin README, shared access to GPUs"})
		}
		for j := range model.Recommendations {
			r := &model.Recommendations[j]
			if r.Mode == advise.Streams {
				report.Add(finding.Finding{ID: "advise-streams", Severity: finding.Info, Subject: model.Product, Reason: advise.Names(r.Workloads) + " would use its GPU better with concurrency of its own (CUDA streams, batches)", Source: "gpuop advise --rules: " + strings.Join(r.Rules, ", ")})
			}
			if !r.Change {
				continue
			}
			report.Add(finding.Finding{
				ID: "advise-" + string(r.Mode), Severity: finding.Warning, Subject: model.Product,
				Reason: fmt.Sprintf("%s would hold the pods of %s on %s in place of %d (confidence %s)", r.Mode, advise.Names(r.Workloads), gpusOf(r.Needed), r.Used, r.Confidence),
				Fix:    "gpuop advise --config prints the configuration", Source: "gpuop advise --rules: " + strings.Join(r.Rules, ", "),
			})
		}
	}
	configurations, findings := configured(a, namespace, v)
	result.Configurations = append(result.Configurations, configurations...)
	report.Add(findings...)
	if alone {
		return answer{Document: true, Quiet: true, Data: result.Configurations, Report: report, Text: func(w io.Writer, _ finding.Style) error {
			for i, c := range result.Configurations {
				if i > 0 {
					fmt.Fprintln(w, "---")
				}
				if _, err := io.WriteString(w, c.File); err != nil {
					return err
				}
			}
			return nil
		}}
	}
	return answer{Data: result, Report: report, Quiet: true, Text: func(w io.Writer, style finding.Style) error {
		return writeAdvice(w, style, &result)
	}}
}

func gpusOf(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return strconv.Itoa(n) + " GPUs"
}

// configured writes the configurations as the offline generators do: the operator reads one ConfigMap
// of the device plugin's configs and one of the MIG manager's, whatever the number of models.
func configured(a *advise.Advice, namespace string, v chart.Version) ([]configuration, []finding.Finding) {
	share := configuration{Name: "advised-sharing", Checks: []string{"gpuop lint FILE"}}
	parts := configuration{Name: "advised-mig", Checks: []string{"gpuop lint FILE"}}
	configs := []sharing.Wanted{{Name: "default", Sharing: sharing.Sharing{Strategy: "none"}}}
	labeled := map[string][]string{} // nodes by config
	var named []mig.Named
	var nodes []string
	strategy := mig.StrategySingle
	for i := range a.Models {
		m := &a.Models[i]
		product := strings.Join(strings.Fields(m.Product), "-")
		for j := range m.Recommendations {
			r := &m.Recommendations[j]
			if !r.Change {
				continue
			}
			if w := r.Sharing; w != nil {
				if labeled[w.Name] == nil {
					configs = append(configs, *w)
					share.Checks = append(share.Checks, fmt.Sprintf("gpuop share predict -f FILE --gpu %s --default default --label %s", product, w.Name))
				}
				labeled[w.Name] = append(labeled[w.Name], r.Nodes...) // never empty: it needs a GPU
			}
			for _, p := range r.Partitions {
				named, nodes = append(named, p.Named), append(nodes, nodeArguments(p.Nodes))
				if p.Strategy == mig.StrategyMixed {
					strategy = mig.StrategyMixed
				}
			}
			for _, g := range slices.Compact(slices.Sorted(slices.Values(r.Geometry))) {
				parts.Checks = append(parts.Checks, fmt.Sprintf("gpuop mig fit --gpu %s %s", product, g))
			}
		}
	}
	var all []configuration
	var findings []finding.Finding
	if len(configs) > 1 {
		share.File = shareDocument(sharing.Operator, configs, "default", func(config string) string { return nodeArguments(labeled[config]) }, share.Name, namespace, v)
		all = append(all, share)
	}
	if len(named) > 0 {
		parts.File, findings = migDocument(named, nodes, strategy, parts.Name, namespace, v)
		all = append(all, parts)
	}
	return all, findings
}

// nodeArguments are nodes as kubectl takes them. A series without the label hostname is known by the
// address of its target, which is no node's name.
func nodeArguments(nodes []string) string {
	var all []string
	for _, n := range nodes {
		if strings.Contains(n, ":") {
			n = "NODE"
		}
		all = append(all, n)
	}
	return strings.Join(slices.Compact(all), " ")
}

func writeAdvice(w io.Writer, style finding.Style, a *adviceResult) error {
	what := "one page, of a time it does not say"
	if !a.To.IsZero() {
		what = "scraped at " + a.To.UTC().Format(time.RFC3339)
	}
	if d := a.To.Sub(a.From); d >= time.Minute {
		what = fmt.Sprintf("%s to %s, samples in %.0f %% of it", a.From.UTC().Format(time.RFC3339), a.To.UTC().Format(time.RFC3339), 100*a.Covered)
	}
	fmt.Fprintf(w, "%s: %s\n", a.Source, what)
	for _, warning := range a.Warnings {
		fmt.Fprintf(w, "%s %s\n", style.Yellow("the server warns:"), warning)
	}
	for i := range a.Models {
		m := &a.Models[i]
		fmt.Fprintf(w, "\n%s\n", style.Bold(fmt.Sprintf("%s: %s, %d with pods; %d would do, %d freed", m.Product, gpusOf(m.GPUs), m.Used, m.Needed, m.Freed)))
		for j := range m.Recommendations {
			if err := writeRecommendation(w, style, &m.Recommendations[j]); err != nil {
				return err
			}
		}
	}
	for _, c := range a.Configurations {
		fmt.Fprintf(w, "\n%s\n", style.Bold("configuration "+c.Name))
		for _, check := range c.Checks {
			fmt.Fprintln(w, style.Dim("check: "+check))
		}
		if _, err := io.WriteString(w, c.File); err != nil {
			return err
		}
	}
	return nil
}

func writeRecommendation(w io.Writer, style finding.Style, r *advise.Recommendation) error {
	var title string
	switch {
	case r.Replicas > 1:
		title = fmt.Sprintf("%s, %d pods a GPU, on %s in place of %d", r.Mode, r.Replicas, gpusOf(r.Needed), r.Used)
	case len(r.Geometry) > 0:
		title = fmt.Sprintf("%s, on %s in place of %d", r.Mode, gpusOf(r.Needed), r.Used)
	case r.Mode == advise.None:
		title = "as it is, on " + gpusOf(r.Used)
	default:
		title = fmt.Sprintf("%s, on %s", r.Mode, gpusOf(r.Used))
	}
	painted := style.Green(title)
	if r.Change {
		painted = style.Yellow(title)
	}
	fmt.Fprintf(w, "\n  %s  %s\n", painted, style.Dim("confidence "+r.Confidence))
	for i, reason := range r.Reasons {
		paragraph(w, "    ", r.Rules[i]+": "+reason)
	}
	for i, g := range r.Geometry {
		fmt.Fprintf(w, "    GPU %d: %s at %s\n", i+1, g, r.Layout[i])
	}
	rows := [][]string{{"    EVIDENCE", "PODS", "GPUS", "NOW", "SHAPE", "ACTIVE mean", "p95", "max", "MEMORY peak", "SM p95", "OCCUPANCY p95", "DRAM p95", "SAMPLES"}}
	for _, x := range r.Workloads {
		rows = append(rows, []string{
			"    " + x.Namespace + "/" + x.Name, strconv.Itoa(x.Pods), strconv.Itoa(x.GPUs), x.Now, x.Shape,
			percent(x.Active, x.Active.Mean), percent(x.Active, x.Active.P95), percent(x.Active, x.Active.Max), peak(x.Memory),
			percent(x.SM, x.SM.P95), percent(x.Occupancy, x.Occupancy.P95), percent(x.DRAM, x.DRAM.P95), strconv.Itoa(x.Active.Samples),
		})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for _, missing := range r.Missing {
		paragraph(w, "    ", "missing: "+missing)
	}
	for _, risk := range r.Risks {
		paragraph(w, "    ", "at risk, "+risk.ID+": "+risk.Text)
	}
	for _, other := range r.NotChosen {
		paragraph(w, "    ", "not "+other.ID+": "+other.Text)
	}
	return nil
}

// paragraph writes text folded to the width of findings.
func paragraph(w io.Writer, indent, text string) {
	for i, line := range finding.Fold(finding.OneLine(text), finding.TextWidth-2*len(indent)) {
		if i > 0 {
			line = "  " + line
		}
		fmt.Fprintf(w, "%s%s\n", indent, line)
	}
}

func percent(s telemetry.Stat, v float64) string {
	if !s.Known() {
		return "?"
	}
	return cmp.Or(strings.TrimSuffix(strconv.FormatFloat(100*v, 'f', 0, 64), "."), "0") + " %"
}

func peak(s telemetry.Stat) string {
	if !s.Known() {
		return "?"
	}
	return advise.GiB(s.Max)
}
