package fields

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

// Checks of a Reader.
var (
	Syntax   = check.New("yaml-syntax", check.Error, "The file is not valid YAML.", "Correct the line.", "YAML 1.2")
	Ellipsis = check.New("yaml-ellipsis", check.Error,
		`A line contains only "...", left over from a shortened example.`,
		"Write the missing lines.", "YAML 1.2")
	Aliases = check.New("yaml-aliases", check.Error, "Aliases expand to too many values or refer to themselves.",
		"Write the values out.", "YAML 1.2")
	Duplicate = check.New("duplicate-key", check.Error, "A mapping has the same key twice.",
		"Keep one of them.", "YAML 1.2")
	UnknownKey = check.New("unknown-key", check.Error,
		"No release has this key, or Kubernetes has no such field. It is ignored, or the file is rejected.",
		"Use the suggested key.", check.ChartValues)
	WrongType = check.New("wrong-type", check.Error,
		"The chart, the API server or the device plugin expects a value of another type.",
		"Use the expected type.", check.ChartValues+"; "+check.CRDs)
)
