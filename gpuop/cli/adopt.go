package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/adopt"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/values"
)

func newAdoptCommand(e *env) *cobra.Command {
	var (
		version, image, counters, monitor string
		beside                            bool
	)
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Make the operator run this project's exporter, or run it safely beside the operator's",
		Long: `adopt writes the values that make the operator run this project's exporter in place of its own. With --beside
it writes a patch for this project's own DaemonSet (deployment/kubernetes), and in comments the values that the
operator needs for two exporters on one node.`,
		Example: `  gpuop adopt --image ghcr.io/gpu-telemetry/dcgm-exporter:1.0.0 --out adopt.yaml
  gpuop adopt --image ghcr.io/gpu-telemetry/dcgm-exporter:1.0.0 --counters my-counters
  gpuop adopt --image ghcr.io/gpu-telemetry/dcgm-exporter:1.0.0 --beside --out patch.yaml`,
		Args: exactly(0, "no arguments"),
		RunE: func(_ *cobra.Command, _ []string) error {
			v, err := e.release(version)
			if err != nil {
				return err
			}
			if image == "" {
				tag := imageTag(e.version)
				if tag == "" {
					return fmt.Errorf("%w: --image: this build of gpuop has no release, name the exporter's image with its tag", errUsage)
				}
				image = adopt.DefaultImage + ":" + tag
			}
			plan := adopt.Request{Image: image, Counters: counters, ServiceMonitor: monitor, Version: v, Table: e.table}
			var text []byte
			var settings []chart.Setting
			if beside {
				var patch string
				if settings, patch, err = adopt.Beside(image); err != nil {
					return err
				}
				text, err = besideText(settings, patch, v.String())
			} else {
				if settings, err = plan.Settings(); err != nil {
					return err
				}
				text, err = adoptText(settings, v.String(), e.outPath)
			}
			if err != nil {
				return err
			}
			return e.answer(answer{Document: true, Quiet: true, Text: literal(text), Report: finding.Report{Findings: plan.Notes(beside)},
				Data: struct {
					Settings []chart.Setting `json:"values"`
					File     string          `json:"file"`
				}{settings, string(text)}})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&version, "version", "latest", "chart `release` of the operator")
	flags.StringVar(&image, "image", "", "the exporter's `image` with its tag (default: that of this release of gpuop)")
	flags.StringVar(&counters, "counters", "", "`name` of a ConfigMap in the operator's namespace with the counters under the key dcgm-metrics.csv")
	flags.StringVar(&monitor, "service-monitor", "", "switch the operator's ServiceMonitor `on` or off; left as the chart has it when not given")
	flags.BoolVar(&beside, "beside", false, "run beside the operator's exporter, from this project's own DaemonSet")
	return cmd
}

func adoptText(settings []chart.Setting, version, file string) ([]byte, error) {
	if file == "" {
		file = "adopt.yaml"
	}
	head := "The operator runs this project's exporter in place of its own.\n\nApply:\n" +
		"  helm upgrade gpu-operator nvidia/gpu-operator -n gpu-operator --version " + version + " \\\n    --reset-then-reuse-values --values " + file + "\n\nUndo:\n" +
		"  the same without these values; the chart's own exporter comes back"
	return values.Write(head, settings)
}

func besideText(settings []chart.Setting, patch, version string) ([]byte, error) {
	text, err := values.Write("The operator's values:\n  helm upgrade gpu-operator nvidia/gpu-operator -n gpu-operator --version "+version+" --reset-then-reuse-values --values …", settings)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for line := range strings.SplitSeq(strings.TrimRight(string(text), "\n"), "\n") {
		if !strings.HasPrefix(line, "#") {
			line = "#   " + line
		}
		b.WriteString(line + "\n")
	}
	b.WriteString("#\n" + patch)
	return b.Bytes(), nil
}
