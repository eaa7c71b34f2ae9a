package values

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

//go:embed choices.yaml
var choicesText []byte

// choice is a platform or a feature. choices.yaml describes the fields.
type choice struct {
	Name, About string
	// Namespace, Source and Features are set only for platforms.
	Namespace, Source string
	Features          []string
	Argument, Default string
	Most              int // 0 means no limit
	Needed            bool
	With              map[string]addition
	Excludes          map[string]string
	Registry          string
	addition          `yaml:",inline"`
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

// condition restricts when a value or step is added. Empty fields do not restrict.
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

// Platforms returns the name and description of each platform.
func Platforms() [][2]string { return listed(choices().Platforms) }

// Features returns the name and description of each feature. The name of a feature with an argument is name=argument,
// or name[=argument] if the argument is optional.
func Features() [][2]string { return listed(choices().Features) }

func listed(list []choice) (out [][2]string) {
	for _, c := range list {
		name := c.Name
		switch {
		case c.Needed:
			name += "=" + c.Argument
		case c.Argument != "":
			name += "[=" + c.Argument + "]"
		}
		out = append(out, [2]string{name, c.About})
	}
	return out
}

// choose finds a platform or feature by name.
func choose(what, name string, list []choice) (choice, error) {
	var names []string
	for _, c := range list {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	hint := check.Suggest(name, names, "expected one of "+strings.Join(names, ", "))
	return choice{}, fmt.Errorf("%w %s %q: %s", ErrUnknown, what, name, hint)
}
