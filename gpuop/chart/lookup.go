package chart

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// Match describes where a path is among the values of a release.
type Match struct {
	Status Status
	// Key is the key at or above the path or, for a group of another release, a key in the group. It is nil if there is
	// none.
	Key *Key
	// Nearest is the path that was probably meant. For a removed key, it is the path that replaces it. It is nil if
	// there is none.
	Nearest Path
	// Bad is the index of the first wrong name in the path. If the path is known, it is the index of the last name. It
	// is 0 for Group and Free.
	Bad int
	// Names are the valid names at index Bad, if the path is unknown.
	Names []string
}

// Status says how a path relates to the values of a release.
type Status uint8

// These are the statuses of a path.
const (
	Known      Status = iota // a key of the chart
	Group                    // a group of keys
	Free                     // a name inside a value that accepts any name
	Misspelled               // like Free, but resembles a name in the chart's defaults
	TooDeep                  // below a key that is a scalar
	NotYet                   // added by a later release
	Gone                     // removed in this or an earlier release
	Unknown                  // in no release
	BelowList                // below a key that is a list
)

// Lookup looks up a path in the values of release v.
func (t *Table) Lookup(v Version, path Path) Match {
	if len(path) == 0 {
		return Match{Status: Group}
	}
	if path[0] == "global" || len(path) > 1 && path[1] == "global" {
		return Match{Status: Free} // global holds Helm's values for all subcharts
	}
	for n := len(path); n > 0; n-- {
		if k, ok := t.keys[path[:n].String()]; ok && k.In(v) && !t.group(v, path[:n]) {
			return t.matchKey(v, k, path, n)
		}
	}
	if t.group(v, path) {
		return Match{Status: Group}
	}
	for n := len(path) - 1; n > 0; n-- {
		if k, ok := t.keys[path[:n].String()]; ok && k.Use(v) == Copied {
			return t.matchBelow(v, k, path, n)
		}
	}
	return t.matchMissing(v, path)
}

// group reports whether the path is a group of keys at v.
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

// guardedElsewhere lists groups that may be null. Either the templates read them only if another group is set, or they
// belong to a subchart, which keeps its defaults.
var guardedElsewhere = []string{"draDriver", "node-feature-discovery"}

// Needed reports whether the templates of v fail if the group at path is null. null removes the group's defaults, so a
// template that reads a key in the group unconditionally fails with a nil pointer.
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

// has reports whether the path is a key or a group at v.
func (t *Table) has(v Version, path Path) bool {
	k, ok := t.keys[path.String()]
	return ok && k.In(v) || t.group(v, path)
}

// matchKey looks up a path whose first n names are the path of the key k.
func (t *Table) matchKey(v Version, k *Key, path Path, n int) Match {
	match := Match{Key: k, Bad: n - 1}
	if n == len(path) {
		return match
	}
	switch k.Shape(v) {
	case Scalar:
		match.Status, match.Bad = TooDeep, n
	case List:
		match.Status, match.Bad = BelowList, n
	default:
		return t.matchBelow(v, k, path, n)
	}
	return match
}

// matchBelow looks up a path inside the key k, whose path is path[:n]. In an object of the ClusterPolicy, the valid
// names are those of the CRD and of the chart. Elsewhere, any name is valid.
func (t *Table) matchBelow(v Version, k *Key, path Path, n int) Match {
	for ; n < len(path); n++ {
		f, ok := t.PolicyField(v, path[:n])
		if !ok || f.Type != "object" {
			return t.matchFree(v, k, path, n)
		}
		names := slices.Clone(t.namesBelow(v, path[:n]))
		for _, inner := range t.Fields(v, "ClusterPolicy", f.Path) {
			names = append(names, inner.Name())
		}
		if slices.Contains(names, path[n]) {
			continue
		}
		match := Match{Status: Unknown, Key: k, Bad: n, Names: names}
		if missing := t.matchMissing(v, path); missing.Status != Unknown {
			return missing
		}
		if near := nearest(path[n], names); near != "" {
			match.Nearest = replaced(path, n, near)
		}
		return match
	}
	return Match{Status: Known, Key: k, Bad: n - 1}
}

// matchFree looks up a path inside a map that accepts any name. It detects misspellings of names that the chart has
// there.
func (t *Table) matchFree(v Version, k *Key, path Path, n int) Match {
	for ; n < len(path); n++ {
		names := t.namesBelow(v, path[:n])
		if slices.Contains(names, path[n]) {
			continue
		}
		if near := check.Nearest(path[n], names); near != "" {
			return Match{Status: Misspelled, Key: k, Nearest: replaced(path, n, near), Bad: n}
		}
		break
	}
	return Match{Status: Free, Key: k}
}

// matchMissing looks up a path that v does not have.
func (t *Table) matchMissing(v Version, path Path) Match {
	bad := 0
	for bad < len(path)-1 && t.has(v, path[:bad+1]) {
		bad++
	}
	for n := len(path); n > bad; n-- {
		k := t.keys[path[:n].String()]
		if k == nil && n == bad+1 {
			k = lastRemoved(t.groups[path[:n].String()])
		}
		switch {
		case k == nil:
		case v.Before(k.Since()):
			return Match{Status: NotYet, Key: k, Bad: n - 1}
		default:
			return Match{Status: Gone, Key: k, Bad: n - 1, Nearest: successor(path)}
		}
	}
	names := slices.Clone(t.namesBelow(v, path[:bad]))
	match := Match{Status: Unknown, Bad: bad, Nearest: successor(path), Names: names}
	if match.Nearest == nil {
		if near := nearest(path[bad], names); near != "" {
			match.Nearest = replaced(path, bad, near)
		} else {
			match.Nearest = t.elsewhere(v, path)
		}
	}
	return match
}

// nearest returns the name that was probably meant, or "". It is a name with a similar spelling, or the only name that
// is related to word, such as timeoutSeconds for timeout.
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

// isRelated reports whether the longer word ends with the shorter one, or starts with at least the first three quarters
// of it. Words shorter than four letters are never related.
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

// lastRemoved returns the key that was removed last, or nil if there are no keys. Ties go to the first.
func lastRemoved(keys []*Key) *Key {
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

// elsewhere returns the path of the key that was probably meant, or nil. The rules are tried in order, and exactly one
// key of the release must fit a rule.
func (t *Table) elsewhere(v Version, path Path) Path {
	same := func(k *Key) bool {
		return len(k.Path) > 1 && k.Path[0] == path[0] && k.Path[len(k.Path)-1] == path[len(path)-1]
	}
	tail := func(k *Key) bool {
		return len(path) > 1 && len(k.Path) > 1 && slices.Equal(k.Path[len(k.Path)-2:], path[len(path)-2:])
	}
	// the second of two names is the same; keys of the subchart do not count
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

// HasComponent reports whether any release has the top-level name.
func (t *Table) HasComponent(name string) bool {
	return len(t.groups[Path{name}.String()]) > 0 || t.keys[name] != nil
}

// Component returns the top-level name that name is or probably means, or "".
func (t *Table) Component(name string) string {
	if t.HasComponent(name) {
		return name
	}
	if to := successor(Path{name}); to != nil {
		return to[0]
	}
	return check.Nearest(name, t.components)
}

// succession describes what replaces a key.
type succession struct{ from, to, advice string }

// successors lists removed keys with their replacements. It also lists wrong names that articles or the ClusterPolicy
// suggest. An empty replacement means that no setting is needed. Source: the chart's templates from v1.11.1 to v26.7.0.
var successors = []succession{
	{"driver.useOpenKernelModules", "driver.kernelModuleType",
		"use driver.kernelModuleType: open for true, proprietary for false"},
	{"driver.use_ocp_driver_toolkit", "operator.use_ocp_driver_toolkit", ""},
	{"driver.rollingUpdate", "daemonsets.rollingUpdate", ""},
	{"node-feature-discovery.master.extraLabelNs", "node-feature-discovery.master.config.extraLabelNs", ""},
	{"node-feature-discovery.enableNodeFeatureApi", "", "delete it: the NodeFeature API is always used now"},
	{"cdi.default", "", "delete it: CDI is the default if cdi.enabled is true"},
	{"psp.enabled", "",
		"delete it: Kubernetes 1.25 removed PodSecurityPolicies; psa.enabled labels the namespace instead"},
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

// successor returns the path that replaces a removed key, or nil.
func successor(path Path) Path {
	s := replacement(path)
	if s == nil || s.to == "" {
		return nil
	}
	return ParsePath(s.to + strings.TrimPrefix(path.String(), s.from))
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

// IsObsolete reports whether path is a removed key that no setting replaces.
func IsObsolete(path Path) bool {
	s := replacement(path)
	return s != nil && s.to == ""
}

// replacement returns the entry of successors for the key at path or for a group around it, or nil.
func replacement(path Path) *succession {
	p := path.String()
	for i := range successors {
		if s := &successors[i]; p == s.from || strings.HasPrefix(p, s.from+".") {
			return s
		}
	}
	return nil
}
