package cli

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/images"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

func newImagesCommand(e *env) *cobra.Command {
	var (
		version        string
		sets           []string
		nodes          images.Nodes
		long, all, ask bool
	)
	cmd := &cobra.Command{Use: "images [VALUES]", Args: cobra.MaximumNArgs(1),
		Short: "List every image that an installation pulls, for mirroring",
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := e.release("version", version)
			if err != nil {
				return err
			}
			var data []byte
			file := ""
			for _, file = range args { // at most one
				if data, err = e.read(file); err != nil {
					return err
				}
			}
			settings, findings := model.Settings(inputName(file), data, sets)
			list, err := images.List(e.table, v, settings, nodes, all)
			if err != nil {
				return err
			}
			if images.ByNVIDIADriver(e.table, v, settings) {
				findings = append(findings, check.Finding{
					Check: input.Skipped, Severity: check.Note, Subject: "driver.nvidiaDriverCRD.enabled",
					Reason: "NVIDIADrivers select the driver images: images of NVIDIADrivers outside " +
						"the chart are not listed"})
			}
			report := check.Report{Findings: findings}
			if report.AtLeast(check.Error) {
				list = nil // it could be wrong
			}
			checked := make([]images.Checked, len(list))
			for i := range list {
				checked[i].Image = list[i]
			}
			if ask {
				checked = images.Check(cmd.Context(), list)
			}
			return e.answer(imagesAnswer(checked, report, long))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&version, "version", "latest", "chart `release`")
	flags.StringArrayVar(&sets, "set", nil, "override a value: `key=value`; may be repeated")
	flags.StringSliceVar(&nodes.Systems, "os", nil,
		"operating `system` of the GPU nodes, such as ubuntu24.04 or rhel9.6; may be repeated")
	flags.StringSliceVar(&nodes.Kernels, "kernel", nil,
		"`kernel` of the GPU nodes, for precompiled drivers; may be repeated")
	flags.BoolVar(&all, "all", false, "also list the images of disabled operands")
	flags.BoolVar(&ask, "check", false, "ask the registries whether the images exist")
	flags.BoolVarP(&long, "long", "l", false, "print the operand before each image")
	return cmd
}

// imagesAnswer lists the images, with the answers of the registries if they were asked. Images whose names are
// uncertain for the same reason share one note.
func imagesAnswer(list []images.Checked, report check.Report, long bool) answer {
	document, fail := bytes.NewBuffer([]byte{}), false
	for _, i := range list {
		if i.Answer != "" {
			fmt.Fprintf(document, "%-7s ", i.Answer)
		}
		if long {
			fmt.Fprintf(document, "%-24s ", i.Operand)
		}
		fmt.Fprintln(document, i.Name)
		fail = fail || i.Answer == images.Unknown
		f := check.Finding{Check: uncertainTag, Severity: check.Note, Subject: i.Name, Reason: i.Note}
		same := func(r check.Finding) bool { return r.Reason == i.Note }
		switch at := slices.IndexFunc(report.Findings, same); {
		case i.Note != "" && at >= 0:
			report.Findings[at].Subject += ", " + i.Name
		case i.Note != "":
			report.Add(f)
		case i.Answer == images.Missing:
			f.Check, f.Severity, f.Reason = imageMissing, check.Error, "the registry does not have this image"
			report.Add(f)
		case i.Answer == images.Unknown:
			f.Check, f.Severity, f.Reason = imageUnchecked, check.Unknown, i.Why
			report.Add(f)
		}
	}
	return answer{Document: document.Bytes(), Data: list, Report: report, Fail: fail}
}
