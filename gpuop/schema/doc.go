// Package schema validates YAML against the custom resource definitions of a GPU Operator release: types, values,
// required and unknown fields. The fields come from package chart.
package schema
