package check

import (
	"fmt"
	"slices"
	"strings"
)

// Check is something that gpuop looks for. Each is declared once, as a package variable next to the code that reports it.
type Check struct {
	// ID is the stable name in kebab case, such as "unknown-key".
	ID string
	// Severity is the highest severity of its findings.
	Severity Severity
	// Title says what a finding means, Help what to do.
	Title, Help string
	// Source names the documentation, as a URL or a path in NVIDIA's repositories.
	Source string
}

// Sources of several packages.
const (
	Gpuop       = "gpuop"
	ChartValues = "gpu-operator values.yaml, tags v1.7.0 to v26.7.0"
	CRDs        = "gpu-operator custom resource definitions"
	HelmInstall = "Helm documentation: helm install"
)

var registry = map[string]*Check{}

// New declares a check. It panics if the ID is taken.
func New(id string, severity Severity, title, help, source string) *Check {
	if registry[id] != nil {
		panic(fmt.Sprintf("check %s is declared twice", id))
	}
	c := &Check{id, severity, title, help, source}
	registry[id] = c
	return c
}

// All returns the checks of the linked packages, sorted by ID.
func All() []*Check {
	var all []*Check
	for _, c := range registry {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Check) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Find returns the check with an ID, or nil.
func Find(id string) *Check { return registry[id] }

// MarshalText implements encoding.TextMarshaler. A check is written as its ID.
func (c *Check) MarshalText() ([]byte, error) { return []byte(c.ID), nil }
