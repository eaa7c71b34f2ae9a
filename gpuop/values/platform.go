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
	// Namespace, Source and Features are set only for platforms. Features lists what the platform's nodes already
	// provide, such as preinstalled-driver.
	Namespace, Source string
	Features          []string
	// Argument describes the text after "name=". Default is used without it, and Needed makes it required. Most is the
	// largest number of replicas; 0 means no limit. With maps an argument to its additions.
	Argument, Default string
	Most              int
	Needed            bool
	With              map[string]addition
	// Excludes maps each incompatible feature to the reason.
	Excludes map[string]string
	// Registry says why a registry is required.
	Registry string
	addition `yaml:",inline"`
}

// addition is the settings and steps that a choice adds to a plan.
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

// condition restricts when a value or step is added. The release must have the key Has and lack the key Lacks. The
// feature Without must not be requested. Empty fields do not restrict.
type condition struct{ Has, Lacks, Without string }

// Step is a command to run in addition to helm, or a manifest to apply.
type Step struct {
	Why     string `json:"why"`
	Command string `json:"command"`
}

var choices = sync.OnceValue(func() (t struct{ Platforms, Features []choice }) {
	_ = yaml.Unmarshal(choicesText, &t) // cannot fail: a test parses the file
	return t
})
