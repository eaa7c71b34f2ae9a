package values

import (
	_ "embed"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed choices.yaml
var choicesText []byte

// choice is a platform or a feature.
type choice struct {
	Name, About string
	// Namespace, Source and Features (those that the nodes already have) are only set for platforms.
	Namespace, Source string
	Features          []string
	// Argument describes the value after a feature's =. Needed makes the value required.
	Argument, Default string
	Most              int
	Needed            bool
	With              map[string]addition
	// Excludes maps incompatible features to the reason.
	Excludes map[string]string
	// Registry says why a registry is required.
	Registry string
	addition `yaml:",inline"`
}

// addition has the settings and steps that a choice adds to a plan.
type addition struct {
	Values []struct {
		Path, Why string
		Value     any
		condition `yaml:",inline"`
	}
	Before, After []struct {
		Step      `yaml:",inline"`
		condition `yaml:",inline"`
	}
}

// condition has a key that the release must have, a key that it must not have, and a feature that must not be
// requested. Each may be empty.
type condition struct{ Has, Lacks, Without string }

// Step is a command to run in addition to helm, or a manifest to apply.
type Step struct {
	Why     string `json:"why"`
	Command string `json:"command"`
}

var choices = sync.OnceValue(func() (t struct{ Platforms, Features []choice }) {
	_ = yaml.Unmarshal(choicesText, &t) // a test parses every row
	return t
})
