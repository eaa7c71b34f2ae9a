// Package values writes values files of the gpu-operator chart: from a platform and features, or
// from a values file for another release.
//
// A Request goes in, a Plan comes out: values with the reason for each, the helm command, and what
// is to be done beside it. Platforms and features are data (choices.yaml); the chart's keys come from
// package chart, what is wrong with a file from package lint.
//
// The package writes no file and keeps no state; the caller chooses names and streams.
package values
