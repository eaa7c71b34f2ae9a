package chart

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// A Verdict says how a path stands to the chart's values at a version.
type Verdict struct {
	Status Status
	// Key is the key that the path names or lies in; nil for a group and for an unknown path.
	Key *Key
	// Nearest is the path that the author may have meant, or nil.
	Nearest Path
	// Bad is the index in the path of the first name that is wrong.
	Bad int
}

// A Status is the kind of a Verdict.
type Status uint8

// The statuses of a path.
const (
	Known     Status = iota // a key of the chart
	Group                   // a map of keys: only its inner names are settings
	Free                    // below a key whose map or list takes any name
	Misspelt                // below such a key, but one letter away from a name that the chart has there
	TooDeep                 // below a key that is a scalar
	NotYet                  // Key, or the group that it is of, comes with a later version
	Gone                    // Key, or the group that it is of, went with an earlier version
	Unknown                 // no version has it
	BelowList               // below a key that is a list
)

// Judge says how path stands to the values of the chart at v.
func (t *Table) Judge(v Version, path Path) Verdict {
	if len(path) == 0 {
		return Verdict{Status: Group}
	}
	if path[0] == "global" || len(path) > 1 && path[1] == "global" {
		return Verdict{Status: Free} // Helm's own: values for all subcharts
	}
	for n := len(path); n > 0; n-- {
		if k, ok := t.keys[path[:n].String()]; ok && k.In(v) && !t.group(v, path[:n]) {
			return t.judgeKey(v, k, path, n)
		}
	}
	if t.group(v, path) {
		return Verdict{Status: Group}
	}
	for n := len(path) - 1; n > 0; n-- {
		if k, ok := t.keys[path[:n].String()]; ok && k.Use(v) == Copied {
			return t.below(v, k, path, n)
		}
	}
	return t.judgeMissing(v, path)
}

// group reports whether the chart has keys below the path at v.
func (t *Table) group(v Version, path Path) bool {
	return len(t.namesBelow(v, path)) > 0
}

// namesBelow returns the names that the chart has at v directly below the path. The table keeps them.
func (t *Table) namesBelow(v Version, path Path) []string {
	if i := t.index(v); i >= 0 {
		return t.children[i][path.String()]
	}
	return nil
}

// guardedElsewhere are groups that a template reads only behind a condition on another group, or that are a
// subchart's, whose own defaults a null leaves.
var guardedElsewhere = []string{"draDriver", "node-feature-discovery"}

// Needed reports whether the templates of v end in a nil pointer where the group at the path is null, which
// deletes its defaults: they read a key below it, and no condition reads the group first.
func (t *Table) Needed(v Version, path Path) bool {
	if !t.group(v, path) || slices.Contains(guardedElsewhere, path[0]) {
		return false
	}
	guarded := func(k *Key) bool {
		for n := len(path); n < len(k.Path); n++ {
			if g, ok := t.keys[k.Path[:n].String()]; ok && g.Use(v) != Unread {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(t.groups[path.String()], func(k *Key) bool { return k.Use(v) != Unread && !guarded(k) })
}

// has reports whether the chart has a key or keys at the path at v.
func (t *Table) has(v Version, path Path) bool {
	k, ok := t.keys[path.String()]
	return ok && k.In(v) || t.group(v, path)
}

// judgeKey looks at a path of which the first n names are a key of v.
func (t *Table) judgeKey(v Version, k *Key, path Path, n int) Verdict {
	verdict := Verdict{Key: k, Bad: n - 1}
	if n == len(path) {
		return verdict
	}
	switch k.Shape(v) {
	case Scalar:
		verdict.Status, verdict.Bad = TooDeep, n
	case List:
		verdict.Status, verdict.Bad = BelowList, n
	default:
		return t.below(v, k, path, n)
	}
	return verdict
}

// below looks at a path inside the first n names of it, which the chart copies as they are: into
// the ClusterPolicy, whose definition then says what there may be, or into an object of Kubernetes,
// where any name is free.
func (t *Table) below(v Version, k *Key, path Path, n int) Verdict {
	for ; n < len(path); n++ {
		f, ok := t.PolicyField(v, path[:n])
		if !ok || f.Type != "object" {
			return t.judgeFree(v, k, path, n)
		}
		names := slices.Clone(t.namesBelow(v, path[:n]))
		for _, inner := range t.Fields(v, "ClusterPolicy", f.Path) {
			names = append(names, inner.Name())
		}
		if slices.Contains(names, path[n]) {
			continue
		}
		verdict := Verdict{Status: Unknown, Key: k, Bad: n}
		if missing := t.judgeMissing(v, path); missing.Status != Unknown {
			return missing
		}
		if near := report.Nearest(path[n], names); near != "" {
			verdict.Nearest = replaced(path, n, near)
		}
		return verdict
	}
	return Verdict{Status: Known, Key: k, Bad: n - 1}
}

// judgeFree looks at names in a free map, from the nth on, beside those that the chart itself gives
// there.
func (t *Table) judgeFree(v Version, k *Key, path Path, n int) Verdict {
	for ; n < len(path); n++ {
		names := t.namesBelow(v, path[:n])
		if slices.Contains(names, path[n]) {
			continue
		}
		if near := report.Nearest(path[n], names); near != "" {
			return Verdict{Status: Misspelt, Key: k, Nearest: replaced(path, n, near), Bad: n}
		}
		break
	}
	return Verdict{Status: Free, Key: k}
}

// judgeMissing looks at a path that v does not have.
func (t *Table) judgeMissing(v Version, path Path) Verdict {
	bad := 0
	for bad < len(path)-1 && t.has(v, path[:bad+1]) {
		bad++
	}
	for n := len(path); n > bad; n-- {
		k := t.keys[path[:n].String()]
		if k == nil && n == bad+1 {
			k = longest(t.groups[path[:n].String()])
		}
		switch {
		case k == nil:
		case v.Before(k.Since()):
			return Verdict{Status: NotYet, Key: k, Bad: n - 1}
		default:
			return Verdict{Status: Gone, Key: k, Bad: n - 1, Nearest: successor(path)}
		}
	}
	verdict := Verdict{Status: Unknown, Bad: bad, Nearest: successor(path)}
	if verdict.Nearest == nil {
		if near := report.Nearest(path[bad], t.namesBelow(v, path[:bad])); near != "" {
			verdict.Nearest = replaced(path, bad, near)
		} else {
			verdict.Nearest = t.elsewhere(v, path)
		}
	}
	return verdict
}

// longest is the key that lived on when the others had gone, of those alike the first; nil of none.
func longest(keys []*Key) *Key {
	if len(keys) == 0 {
		return nil
	}
	return slices.MaxFunc(keys, func(a, b *Key) int { return a.last() - b.last() })
}

func replaced(path Path, n int, name string) Path {
	out := slices.Clone(path)
	out[n] = name
	return out
}

// elsewhere finds the one key whose last name is the requested one: in the same component, or, for
// a key that stands in the wrong component, where its last two names are.
func (t *Table) elsewhere(v Version, path Path) Path {
	same := func(k *Key) bool {
		return len(k.Path) > 1 && k.Path[0] == path[0] && k.Path[len(k.Path)-1] == path[len(path)-1]
	}
	tail := func(k *Key) bool {
		return len(path) > 1 && len(k.Path) > 1 && slices.Equal(k.Path[len(k.Path)-2:], path[len(path)-2:])
	}
	for _, fits := range []func(*Key) bool{tail, same} {
		var found []Path
		for _, k := range t.order {
			if fits(k) && k.In(v) && !t.group(v, k.Path) {
				found = append(found, k.Path)
			}
		}
		if len(found) == 1 {
			return found[0]
		}
	}
	return nil
}

// Component returns the top-level name of the chart's values, at any version, that name is or may
// be meant as, or "".
func (t *Table) Component(name string) string {
	if len(t.groups[Path{name}.String()]) > 0 || t.keys[name] != nil {
		return name
	}
	if to := successor(Path{name}); to != nil {
		return to[0]
	}
	return report.Nearest(name, t.components)
}

// successors are the keys that took the place of others, or that are meant by names which articles
// and the ClusterPolicy use; an empty one means that nothing is to be set any more. From the
// chart's templates at v1.11.1 to v26.7.0.
var successors = []struct{ from, to, advice string }{
	{"driver.useOpenKernelModules", "driver.kernelModuleType", "write driver.kernelModuleType=open"},
	{"driver.use_ocp_driver_toolkit", "operator.use_ocp_driver_toolkit", ""},
	{"driver.rollingUpdate", "daemonsets.rollingUpdate", ""},
	{"node-feature-discovery.master.extraLabelNs", "node-feature-discovery.master.config.extraLabelNs", ""},
	{"node-feature-discovery.enableNodeFeatureApi", "", "drop it: the NodeFeature API is the only way now"},
	{"cdi.default", "", "drop it: cdi.enabled alone makes CDI the default"},
	{"psp.enabled", "", "drop it: Kubernetes 1.25 removed PodSecurityPolicies; psa.enabled labels the namespace instead"},
	{"dcgm.hostPort", "", "drop it: the operator's Service nvidia-dcgm serves port 5555"},
	{"operator.defaultRuntime", "", "drop it: the operator reads the runtime of each node"},
	{"operator.initContainer", "", "drop it: the operands use the operator's own image"},
	{"gpuFeatureDiscovery", "gfd", ""},
	{"gpu-feature-discovery", "gfd", ""},
	{"containerToolkit", "toolkit", ""},
	{"dra", "draDriver", ""},
	{"operator.migStrategy", "mig.strategy", ""},
	{"migStrategy", "mig.strategy", ""},
	{"kataManager", "kataSandboxDevicePlugin", "use sandboxWorkloads.mode=kata with kataSandboxDevicePlugin"},
}

func successor(path Path) Path {
	p := path.String()
	for _, s := range successors {
		if p == s.from && s.to != "" {
			return ParsePath(s.to)
		}
		if rest, found := strings.CutPrefix(p, s.from+"."); found && s.to != "" {
			return ParsePath(s.to + "." + rest)
		}
	}
	return nil
}

// Advice returns what to do instead of setting a key that is gone, or "".
func Advice(path Path) string {
	p := path.String()
	for _, s := range successors {
		if p == s.from || strings.HasPrefix(p, s.from+".") {
			if s.advice != "" {
				return s.advice
			}
			return "use " + successor(path).String()
		}
	}
	return ""
}
