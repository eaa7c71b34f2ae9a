package check

import (
	"slices"
	"strings"
)

// Check is something that gpuop looks for. Each check is a variable of the package that reports it.
type Check struct {
	// ID is the stable name in kebab case, such as "unknown-key".
	ID string
	// Severity is the highest severity of its findings.
	Severity Severity
	// Title says what a finding means. Help says what to do.
	Title, Help string
	// Source says what the check is based on: a page of documentation, files of NVIDIA's repositories, or gpuop itself.
	Source string
}

// These are values of Check.Source that several packages use.
const (
	Gpuop       = "gpuop"
	ChartValues = "gpu-operator values.yaml, tags v1.7.0 to v26.7.0"
	CRDs        = "gpu-operator custom resource definitions"
	HelmInstall = "Helm documentation: helm install"
)

var registry []*Check

// New declares a check. IDs must be unique, which a test ensures.
func New(id string, severity Severity, title, help, source string) *Check {
	c := &Check{id, severity, title, help, source}
	registry = append(registry, c)
	return c
}

// All returns the checks of all packages in the program, sorted by ID.
func All() []*Check {
	return slices.SortedFunc(slices.Values(registry), func(a, b *Check) int { return strings.Compare(a.ID, b.ID) })
}

// Find returns the check with the given ID, or nil.
func Find(id string) *Check {
	if i := slices.IndexFunc(registry, func(c *Check) bool { return c.ID == id }); i >= 0 {
		return registry[i]
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler. A check is written as its ID.
func (c *Check) MarshalText() ([]byte, error) { return []byte(c.ID), nil }
