package chart

import (
	"cmp"
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
	if slices.Contains(path[:min(2, len(path))], "global") {
		return Match{Status: Free} // global holds Helm's values for all subcharts
	}
	for n := len(path); n > 0; n-- {
		k, known := t.Key(path[:n])
		if !known || !k.In(v) || t.group(v, path[:n]) {
			continue
		}
		switch shape := k.shape(v); {
		case n == len(path):
			return Match{Key: k, Bad: n - 1}
		case shape == "string":
			return Match{Status: TooDeep, Key: k, Bad: n}
		case shape == "array":
			return Match{Status: BelowList, Key: k, Bad: n}
		}
		return t.below(v, k, path, n)
	}
	if len(path) == 0 || t.group(v, path) {
		return Match{Status: Group}
	}
	for n := len(path) - 1; n > 0; n-- {
		if k, known := t.Key(path[:n]); known && k.Use(v) == Copied {
			return t.below(v, k, path, n)
		}
	}
	return t.missing(v, path)
}

// group reports whether the path is a group of keys at v.
func (t *Table) group(v Version, path Path) bool {
	return slices.ContainsFunc(t.groups[path.String()], t.release(v).has)
}

// has reports whether the path is a key or a group of keys at v.
func (t *Table) has(v Version, path Path) bool {
	k, known := t.Key(path)
	return known && k.In(v) || t.group(v, path)
}

// names returns the names directly below the path at v.
func (t *Table) names(v Version, path Path) (out []string) {
	release := t.release(v)
	for _, k := range t.groups[path.String()] {
		if name := k.Path[len(path)]; !slices.Contains(out, name) && release.has(k) {
			out = append(out, name)
		}
	}
	return out
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
	return slices.ContainsFunc(t.groups[path.String()], func(k *Key) bool {
		for n := len(path); n < len(k.Path); n++ {
			if g, known := t.Key(k.Path[:n]); known && g.Use(v) != Unread {
				return false
			}
		}
		return k.Use(v) != Unread
	})
}

// below looks up a path inside the key k, whose path is path[:n]. In an object of the ClusterPolicy, the valid names
// are those of the CRD and of the chart. Elsewhere, any name is valid, but misspellings of the chart's names are found.
func (t *Table) below(v Version, k *Key, path Path, n int) Match {
	free := false
	for ; n < len(path); n++ {
		names, f := t.names(v, path[:n]), t.policyField(v, path[:n], "")
		if free = free || f == nil || f.Type != "object"; !free {
			for _, inner := range t.Fields(v, "ClusterPolicy", f.Path) {
				names = append(names, inner.Name())
			}
		}
		if slices.Contains(names, path[n]) {
			continue
		}
		if free {
			if near := replaced(path, n, check.Nearest(path[n], names)); near != nil {
				return Match{Status: Misspelled, Key: k, Nearest: near, Bad: n}
			}
			break
		}
		if missing := t.missing(v, path); missing.Status != Unknown {
			return missing
		}
		near := replaced(path, n, nearest(path[n], names))
		return Match{Status: Unknown, Key: k, Bad: n, Names: names, Nearest: near}
	}
	if free {
		return Match{Status: Free, Key: k}
	}
	return Match{Status: Known, Key: k, Bad: n - 1}
}

// missing looks up a path that v does not have.
func (t *Table) missing(v Version, path Path) Match {
	bad := 0
	for bad < len(path)-1 && t.has(v, path[:bad+1]) {
		bad++
	}
	to, _ := Successor(path)
	for n := len(path); n > bad; n-- {
		k, known := t.Key(path[:n])
		if group := t.groups[path[:n].String()]; !known && n == bad+1 && len(group) > 0 {
			k, known = slices.MaxFunc(group, func(a, b *Key) int { return a.end() - b.end() }), true
		}
		switch {
		case !known:
		case v.Before(k.Since()):
			return Match{Status: NotYet, Key: k, Bad: n - 1}
		default:
			return Match{Status: Gone, Key: k, Bad: n - 1, Nearest: to}
		}
	}
	names := t.names(v, path[:bad])
	if to == nil {
		to = replaced(path, bad, nearest(path[bad], names))
	}
	if to == nil && len(path) > 1 {
		to = t.elsewhere(v, path)
	}
	return Match{Status: Unknown, Bad: bad, Names: names, Nearest: to}
}

// nearest returns the name that was probably meant, or "". It is a name with a similar spelling, or the only name that
// is related to word, such as timeoutSeconds for timeout.
func nearest(word string, names []string) string {
	isUnrelated := func(name string) bool { return !isRelated(strings.ToLower(word), strings.ToLower(name)) }
	related := slices.DeleteFunc(slices.Clone(names), isUnrelated)
	slices.Sort(related)
	if related = slices.Compact(related); len(related) != 1 {
		related = []string{""}
	}
	return cmp.Or(check.Nearest(word, names), related[0])
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

// replaced returns the path with another name at index n, or nil if the name is empty.
func replaced(path Path, n int, name string) Path {
	if name == "" {
		return nil
	}
	return slices.Concat(path[:n], Path{name}, path[n+1:])
}

// elsewhere returns the path of the key that was probably meant, or nil. The rules are tried in order, and exactly one
// key of the release must fit a rule. The path has at least two names.
func (t *Table) elsewhere(v Version, path Path) Path {
	var found [4][]Path
	last := len(path) - 1
	for _, k := range t.groups[""] {
		key, end := k.Path, len(k.Path)-1
		if key[end] != path[last] && !slices.Contains(key, path[1]) {
			continue // no rule fits
		}
		for i, fits := range []bool{
			end > 0 && slices.Equal(key[end-1:], path[last-1:]),
			end > 0 && key[0] == path[0] && key[end] == path[last],
			// keys of the subchart do not count
			end == 1 && last == 1 && key[1] == path[1] && key[0] != "node-feature-discovery",
			end > 1 && slices.Equal(key[:3], Path{path[0], "worker", path[1]}),
		} {
			if fits && k.In(v) && !t.group(v, key) {
				found[i] = append(found[i], key)
			}
		}
	}
	for _, paths := range found {
		if len(paths) == 1 {
			return paths[0]
		}
	}
	return nil
}

// Component returns the top-level name in the values of any release that name is or probably means, or "".
func (t *Table) Component(name string) string {
	var names []string
	for _, k := range t.groups[""] {
		names = append(names, k.Path[0])
	}
	if to, _ := Successor(Path{name}); to != nil && !slices.Contains(names, name) {
		return to[0]
	}
	return check.Nearest(name, slices.Compact(names))
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

// Successor returns the path that replaces a removed key, or nil if no setting does. advice says what to do instead of
// setting the key. It is "" for other keys.
func Successor(path Path) (to Path, advice string) {
	for _, s := range successors {
		rest, found := strings.CutPrefix(path.String()+".", s.from+".")
		if found && s.to != "" {
			to = ParsePath(strings.TrimSuffix(s.to+"."+rest, "."))
		}
		if found {
			return to, cmp.Or(s.advice, "use "+to.String())
		}
	}
	return nil, ""
}
