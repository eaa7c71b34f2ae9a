package values

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed choices.yaml
var choicesText []byte

// A platform is where the operator is to run: what its nodes bring, and what must be set for it.
type platform struct {
	Name, About, Namespace, Source string
	Brings                         []string
	addition                       `yaml:",inline"`
}

// A feature adds to a plan.
type feature struct {
	Name, About, Argument string
	NeedsDriver           bool
	addition              `yaml:",inline"`
	With                  map[string]addition
}

// An addition has the settings that a platform or a feature adds to a plan.
type addition struct {
	Values        []value
	Before, After []step
}

type value struct {
	Path, Why string
	Value     any
	condition `yaml:",inline"`
}

type step struct {
	Step      `yaml:",inline"`
	condition `yaml:",inline"`
}

// A condition has the key that the release must have, and the key that it must lack; "" for none.
type condition struct{ Has, Lacks string }

// A Step is a command to run beside helm, or a manifest to apply.
type Step struct {
	Why     string `json:"why"`
	Command string `json:"command"`
}

var choices = sync.OnceValue(func() (t struct {
	Platforms []platform
	Features  []feature
}) {
	_ = yaml.Unmarshal(choicesText, &t) // a test reads every row
	return t
})

func (g *generator) holds(c condition) bool {
	_, has := g.key(c.Has)
	_, lacks := g.key(c.Lacks)
	return (c.Has == "" || has) && (c.Lacks == "" || !lacks)
}

func (g *generator) add(a addition) {
	for _, v := range a.Values {
		if g.holds(v.condition) {
			g.set(v.Path, v.Value, v.Why)
		}
	}
	steps := func(list []step) (out []Step) {
		for _, s := range list {
			if g.holds(s.condition) {
				out = append(out, Step{s.Why, strings.ReplaceAll(s.Command, "{namespace}", g.plan.Namespace)})
			}
		}
		return out
	}
	g.plan.Before = slices.Concat(g.plan.Before, steps(a.Before))
	g.plan.After = slices.Concat(g.plan.After, steps(a.After))
}
