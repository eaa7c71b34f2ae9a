package values

import (
	_ "embed"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed choices.yaml
var choicesText []byte

// A choice is a platform, where the operator is to run, or a feature.
type choice struct {
	Name, About string
	// Namespace, Source and Features, which the nodes bring, are of a platform.
	Namespace, Source string
	Features          []string
	// Argument explains the word behind a feature's =, and Needed says that there has to be one.
	Argument, Default string
	Most              int
	Needed            bool
	With              map[string]addition
	// Excludes has the features that a feature cannot go with, and the reasons.
	Excludes map[string]string
	// Registry is the reason why a registry has to be named.
	Registry string
	addition `yaml:",inline"`
}

// An addition has the settings and steps that a choice adds to a plan.
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

// A condition has the key that the release must have, the key that it must lack, and the feature that must not be
// wanted; "" for none.
type condition struct{ Has, Lacks, Without string }

// A Step is a command to run beside helm, or a manifest to apply.
type Step struct {
	Why     string `json:"why"`
	Command string `json:"command"`
}

var choices = sync.OnceValue(func() (t struct{ Platforms, Features []choice }) {
	_ = yaml.Unmarshal(choicesText, &t) // a test reads every row
	return t
})
