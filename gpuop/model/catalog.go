package model

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

// These checks are for values files and --set arguments. Package fields has more.
var (
	SetSyntax = check.New("set-syntax", check.Error, "Helm cannot parse the argument of --set.",
		"Correct it as the message says.", check.HelmInstall)
	noValues = check.New("no-values", check.Error, "The file is not a values file of the chart.",
		"Move the values to a file of their own.", check.ChartValues)
	tooLarge = check.New("too-large", check.Error, "The document has too many values.", "Split it.", check.Gpuop)
)
