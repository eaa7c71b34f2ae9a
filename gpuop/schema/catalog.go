package schema

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

// Validator reports these checks and the checks of package fields.
var (
	MissingField = check.New("missing-field", check.Error,
		"A required field is missing: the API server rejects the object.", "Add the field.", check.CRDs)
	UnknownField = check.New("unknown-field", check.Error,
		"The release's custom resource has no such field: the API server drops it.",
		"Use the suggested field.", check.CRDs)
	WrongValue = check.New("wrong-value", check.Error, "The API server or the chart does not accept this value.",
		"Use one of the listed values.", check.ChartValues+"; "+check.CRDs)
)
