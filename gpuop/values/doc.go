// Package values generates values for the gpu-operator chart: for a platform with features, or by migrating a values
// file to another release.
//
// Generate returns a Plan: values with their reasons, the helm command and manual steps. Platforms and features are
// defined in choices.yaml. The package writes no files.
package values
