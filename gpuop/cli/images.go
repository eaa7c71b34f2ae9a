package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/images"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

const imagesHelp = `images lists the images of all operands that the values enable, one per line, as input for a copying
tool. The driver has one image for each operating system of the nodes (--os). Precompiled drivers have one for each
kernel (--kernel) as well. If the name of an image is not certain, a note on standard error says why.

--check asks the registries whether the images exist, with the credentials of docker login. It downloads nothing. The
exit code is 1 if an image is missing or its registry could not be asked.`

func newImagesCommand(e *env) *cobra.Command {
	var (
		version        string
		sets           []string
		nodes          images.Nodes
		long, all, ask bool
	)
	cmd := &cobra.Command{
		Use:   "images [VALUES]",
		Short: "List every image that an installation pulls, for mirroring",
		Long:  imagesHelp,
		Example: `  gpuop images values.yaml --os ubuntu24.04
  gpuop images --version v26.7 --set driver.usePrecompiled=true --set driver.version=580 ` +
			`--os ubuntu24.04 --kernel 6.8.0-60-generic
  gpuop images values.yaml --os ubuntu24.04 --check
  gpuop images values.yaml --os rhel9.6 | xargs -n1 -I{} skopeo copy docker://{} docker://registry.example.com/{}`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := e.release(version)
			if err != nil {
				return err
			}
			var data []byte
			name := ""
			if len(args) == 1 {
				if data, err = e.read(args[0]); err != nil {
					return err
				}
				name = inputName(args[0])
			}
			settings, findings := model.Settings(name, data, sets)
			list, err := images.List(e.table, v, settings, nodes, all)
			if err != nil {
				return err
			}
			if images.ByNVIDIADriver(e.table, v, settings) {
				findings = append(findings, outsideChart)
			}
			a := imagesAnswer(list, findings, long)
			if ask && !a.Report.AtLeast(check.Error) {
				a.checkImages(images.Check(cmd.Context(), list), long)
			}
			return e.answer(a)
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

// outsideChart is the note that NVIDIADrivers select the driver images.
var outsideChart = check.Finding{
	Check: input.Skipped, Severity: check.Note, Subject: "driver.nvidiaDriverCRD.enabled",
	Reason: "NVIDIADrivers select the driver images: images of NVIDIADrivers outside the chart are not listed",
}

// imagesAnswer lists the images. Images that are uncertain for the same reason share one note. If there is a finding of
// severity error, no images are listed, because the list could be wrong.
func imagesAnswer(list []images.Image, findings []check.Finding, long bool) answer {
	a := answer{Document: true, Quiet: true, Report: check.Report{Findings: findings}}
	if a.Report.AtLeast(check.Error) {
		list = nil
	}
	a.Data = list
	for _, i := range list {
		same := func(r check.Finding) bool { return r.Reason == i.Note }
		if at := slices.IndexFunc(a.Report.Findings, same); at >= 0 {
			a.Report.Findings[at].Subject += ", " + i.Name
		} else if i.Note != "" {
			a.Report.Add(check.Finding{Check: uncertainTag, Severity: check.Note, Subject: i.Name, Reason: i.Note})
		}
	}
	a.Text = func(w io.Writer, _ check.Style) error {
		for _, i := range list {
			if err := writeImage(w, i, long); err != nil {
				return err
			}
		}
		return nil
	}
	return a
}

// writeImage writes an image on a line of its own. If long is set, the operand is written before the image.
func writeImage(w io.Writer, i images.Image, long bool) error {
	if long {
		fmt.Fprintf(w, "%-24s ", i.Operand)
	}
	_, err := fmt.Fprintln(w, i.Name)
	return err
}

// checkImages prints the registry's answer before each image, and adds a finding for each missing image. An image that
// could not be checked gets a finding unless a note already says why.
func (a *answer) checkImages(list []images.Checked, long bool) {
	a.Data = list
	for _, i := range list {
		switch i.Answer {
		case images.Missing:
			a.Report.Add(check.Finding{
				Check: imageMissing, Severity: check.Error, Subject: i.Name,
				Reason: "the registry does not have this image",
			})
		case images.Unknown:
			a.Fail = true
			if i.Note == "" { // otherwise the note says why
				a.Report.Add(check.Finding{Check: imageUnchecked, Severity: check.Unknown, Subject: i.Name,
					Reason: i.Why})
			}
		}
	}
	a.Text = func(w io.Writer, _ check.Style) error {
		for _, i := range list {
			fmt.Fprintf(w, "%-7s ", i.Answer)
			if err := writeImage(w, i.Image, long); err != nil {
				return err
			}
		}
		return nil
	}
}
