package chart

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// Verdict says whether the chart has a path at a release.
type Verdict struct {
	Status Status
	// Key is the key at or above the path. It is nil for groups and unknown paths.
	Key *Key
	// Nearest is the path that was probably meant, or nil.
	Nearest Path
	// Bad is the index of the first wrong name in the path.
	Bad int
	// Names are the names that the chart has at that place, if the path is unknown.
	Names []string
}

// Status is the kind of a Verdict.
type Status uint8

// Statuses of a path.
const (
	Known     Status = iota // a key of the chart
	Group                   // a group of keys
	Free                    // inside a key whose map or list accepts any name
	Misspelt                // inside such a key, but one letter away from a name that the chart has there
	TooDeep                 // below a key that is a scalar
	NotYet                  // added by a later release
	Gone                    // removed in an earlier release
	Unknown                 // in no release
	BelowList               // below a key that is a list
)

// Judge looks up a path in the chart's values at v.
func (t *Table) Judge(v Version, path Path) Verdict {
	if len(path) == 0 {
		return Verdict{Status: Group}
	}
	if path[0] == "global" || len(path) > 1 && path[1] == "global" {
		return Verdict{Status: Free} // Helm's values for all subcharts
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

// namesBelow returns the names directly below the path at v. Callers must not change the result.
func (t *Table) namesBelow(v Version, path Path) []string {
	if i := t.index(v); i >= 0 {
		return t.children[i][path.String()]
	}
	return nil
}

// guardedElsewhere lists groups that may be null: templates read them only if another group is set, or they are a
// subchart's, which keeps its defaults.
var guardedElsewhere = []string{"draDriver", "node-feature-discovery"}

// Needed reports whether the templates of v fail with a nil pointer if the group at path is null. Null removes its
// defaults, and the templates read a key in it without a condition.
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

// has reports whether the chart has a key or group at the path at v.
func (t *Table) has(v Version, path Path) bool {
	k, ok := t.keys[path.String()]
	return ok && k.In(v) || t.group(v, path)
}

// judgeKey looks up a path whose first n names are the key k.
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

// below looks up a path inside the key k, which is path[:n]. If the chart copies it to the ClusterPolicy, the CRD says
// which names are valid. If it copies it to a Kubernetes object, any name is valid.
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
		verdict := Verdict{Status: Unknown, Key: k, Bad: n, Names: names}
		if missing := t.judgeMissing(v, path); missing.Status != Unknown {
			return missing
		}
		if near := nearest(path[n], names); near != "" {
			verdict.Nearest = replaced(path, n, near)
		}
		return verdict
	}
	return Verdict{Status: Known, Key: k, Bad: n - 1}
}

// judgeFree looks up a path inside a map with free names. It detects misspellings of the chart's own names.
func (t *Table) judgeFree(v Version, k *Key, path Path, n int) Verdict {
	for ; n < len(path); n++ {
		names := t.namesBelow(v, path[:n])
		if slices.Contains(names, path[n]) {
			continue
		}
		if near := check.Nearest(path[n], names); near != "" {
			return Verdict{Status: Misspelt, Key: k, Nearest: replaced(path, n, near), Bad: n}
		}
		break
	}
	return Verdict{Status: Free, Key: k}
}

// judgeMissing looks up a path that v does not have.
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
	verdict := Verdict{Status: Unknown, Bad: bad, Nearest: successor(path), Names: slices.Clone(t.namesBelow(v, path[:bad]))}
	if verdict.Nearest == nil {
		if near := nearest(path[bad], verdict.Names); near != "" {
			verdict.Nearest = replaced(path, bad, near)
		} else {
			verdict.Nearest = t.elsewhere(v, path)
		}
	}
	return verdict
}

// nearest returns the name that was probably meant: one with few other letters, or the only one that the word begins or
// ends like, such as timeoutSeconds for timeout.
func nearest(word string, names []string) string {
	if near := check.Nearest(word, names); near != "" {
		return near
	}
	var related []string
	for _, name := range names {
		if isRelated(strings.ToLower(word), strings.ToLower(name)) && !slices.Contains(related, name) {
			related = append(related, name)
		}
	}
	if len(related) == 1 {
		return related[0]
	}
	return ""
}

// isRelated reports whether a word begins or ends with another, or shares the first three quarters of the shorter one.
func isRelated(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	same := 0
	for same < len(a) && a[same] == b[same] {
		same++
	}
	return len(a) >= 4 && (strings.HasSuffix(b, a) || same >= 3 && same*4 >= len(a)*3)
}

// longest returns the key that was removed last, or nil. Ties go to the first.
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

// elsewhere finds the only key with the same last name in the same component. For a key in the wrong component, it
// compares the last two names.
func (t *Table) elsewhere(v Version, path Path) Path {
	same := func(k *Key) bool {
		return len(k.Path) > 1 && k.Path[0] == path[0] && k.Path[len(k.Path)-1] == path[len(path)-1]
	}
	tail := func(k *Key) bool {
		return len(path) > 1 && len(k.Path) > 1 && slices.Equal(k.Path[len(k.Path)-2:], path[len(path)-2:])
	}
	// a name that only one key of the operator's own values has
	last := func(k *Key) bool {
		return len(path) == 2 && len(k.Path) == 2 && k.Path[0] != "node-feature-discovery" && k.Path[1] == path[1]
	}
	worker := func(k *Key) bool {
		return len(path) > 1 && len(k.Path) > 2 && k.Path[0] == path[0] && k.Path[1] == "worker" && k.Path[2] == path[1]
	}
	for _, fits := range []func(*Key) bool{tail, same, last, worker} {
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

// HasComponent reports whether the chart has the top-level name in any release.
func (t *Table) HasComponent(name string) bool {
	return len(t.groups[Path{name}.String()]) > 0 || t.keys[name] != nil
}

// Component returns the top-level name of the chart's values that name is or may mean, or "".
func (t *Table) Component(name string) string {
	if t.HasComponent(name) {
		return name
	}
	if to := successor(Path{name}); to != nil {
		return to[0]
	}
	return check.Nearest(name, t.components)
}

// A succession says what replaces a key.
type succession struct{ from, to, advice string }

// successors lists removed keys with their replacements, and wrong names that articles and the ClusterPolicy suggest.
// An empty replacement means that no setting is needed. Source: the chart's templates from v1.11.1 to v26.7.0.
var successors = []succession{
	{"driver.useOpenKernelModules", "driver.kernelModuleType", "write driver.kernelModuleType=open"},
	{"driver.use_ocp_driver_toolkit", "operator.use_ocp_driver_toolkit", ""},
	{"driver.rollingUpdate", "daemonsets.rollingUpdate", ""},
	{"node-feature-discovery.master.extraLabelNs", "node-feature-discovery.master.config.extraLabelNs", ""},
	{"node-feature-discovery.enableNodeFeatureApi", "", "delete it: the NodeFeature API is always used now"},
	{"cdi.default", "", "delete it: CDI is the default if cdi.enabled is true"},
	{"psp.enabled", "", "delete it: Kubernetes 1.25 removed PodSecurityPolicies; psa.enabled labels the namespace instead"},
	{"dcgm.hostPort", "", "delete it: the operator's Service nvidia-dcgm serves port 5555"},
	{"operator.defaultRuntime", "", "delete it: the operator detects the runtime of each node"},
	{"operator.initContainer", "", "delete it: the operands use the operator's own image"},
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

// Advice returns what to do instead of setting a removed key, or "".
func Advice(path Path) string {
	s := replacement(path)
	switch {
	case s == nil:
		return ""
	case s.advice != "":
		return s.advice
	default:
		return "use " + successor(path).String()
	}
}

// IsObsolete reports whether no setting replaces a removed key.
func IsObsolete(path Path) bool {
	s := replacement(path)
	return s != nil && s.to == ""
}

// replacement returns the row of successors for a key or its group, or nil.
func replacement(path Path) *succession {
	p := path.String()
	for i := range successors {
		if s := &successors[i]; p == s.from || strings.HasPrefix(p, s.from+".") {
			return s
		}
	}
	return nil
}
