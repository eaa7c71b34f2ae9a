package chart

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/finding"
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
	NotYet                  // Key comes with a later version
	Gone                    // Key went with an earlier version
	Unknown                 // no version has it
	GroupGone               // a map of keys that went with an earlier version, or comes with a later one
)

// freeMaps are names of maps whose keys are Kubernetes' or the user's own, even where values.yaml gives some.
var freeMaps = map[string]bool{
	"annotations": true, "nodeSelector": true, "labels": true, "resources": true, "affinity": true,
	"podSecurityContext": true, "securityContext": true, "startupProbe": true, "livenessProbe": true,
	"readinessProbe": true, "serviceAccount": true,
}

// Judge says how path stands to the values of the chart at v.
func (t *Table) Judge(v Version, path Path) Verdict {
	if len(path) == 0 {
		return Verdict{Status: Group}
	}
	for n := len(path); n > 0; n-- {
		if k, ok := t.keys[path[:n].String()]; ok {
			return t.judgeKey(v, k, path, n)
		}
	}
	names, free := t.children(v, nil), false
	for n := range path {
		free = free || n > 0 && freeMaps[path[n-1]]
		switch {
		case slices.Contains(names, path[n]):
		case free:
			return t.judgeFree(path, n, names)
		default:
			return t.judgeUnknown(v, path, n, names)
		}
		names = t.children(v, path[:n+1])
	}
	return Verdict{Status: Group}
}

func (t *Table) judgeKey(v Version, k *Key, path Path, n int) Verdict {
	verdict := Verdict{Key: k, Bad: n - 1}
	switch {
	case v.Before(k.Since):
		verdict.Status = NotYet
	case !k.In(v):
		verdict.Status = Gone
		verdict.Nearest = successor(path)
	case n == len(path):
		verdict.Status = Known
	case k.Shape == Scalar:
		verdict.Status, verdict.Bad = TooDeep, n
	default:
		verdict.Status = Free
	}
	return verdict
}

// judgeFree looks at a name in a free map that is none of those, names, which the chart itself gives there.
func (t *Table) judgeFree(path Path, n int, names []string) Verdict {
	if near := nearestName(path[n], names); near != "" {
		return Verdict{Status: Misspelt, Nearest: replaced(path, n, near), Bad: n}
	}
	return Verdict{Status: Free}
}

func (t *Table) judgeUnknown(v Version, path Path, n int, names []string) Verdict {
	// a map that another version has
	for _, k := range t.order {
		if len(k.Path) > n && !k.In(v) && slices.Equal(k.Path[:n+1], path[:n+1]) {
			verdict := Verdict{Status: GroupGone, Key: k, Bad: n}
			if k.Until != (Version{}) {
				verdict.Nearest = successor(path)
			}
			return verdict
		}
	}
	verdict := Verdict{Status: Unknown, Bad: n}
	if n > 0 && path[0] == "node-feature-discovery" {
		// the subchart has keys that this table does not list: only a slip of the pen is sure to be wrong
		return t.judgeFree(path, n, names)
	}
	if verdict.Nearest = successor(path); verdict.Nearest != nil {
		return verdict
	}
	if near := nearestName(path[n], names); near != "" {
		verdict.Nearest = replaced(path, n, near)
		return verdict
	}
	verdict.Nearest = t.elsewhere(v, path)
	return verdict
}

// nearestName compares names without regard to case, hyphens and underscores: dcgm-exporter means dcgmExporter.
func nearestName(name string, names []string) string {
	plain := strings.NewReplacer("-", "", "_", "")
	folded := make([]string, len(names))
	for i, n := range names {
		folded[i] = strings.ToLower(plain.Replace(n))
	}
	near := finding.Nearest(strings.ToLower(plain.Replace(name)), folded)
	if near == "" {
		return ""
	}
	return names[slices.Index(folded, near)]
}

func replaced(path Path, n int, name string) Path {
	out := slices.Clone(path)
	out[n] = name
	return out
}

// elsewhere finds the one key of the same component whose last name is the one asked for.
func (t *Table) elsewhere(v Version, path Path) Path {
	var found []Path
	for _, k := range t.Keys(v) {
		if len(k.Path) > 1 && k.Path[0] == path[0] && k.Path[len(k.Path)-1] == path[len(path)-1] {
			found = append(found, k.Path)
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return nil
}

// Component returns the top-level name of the chart's values, at any version, that name is or may be meant as, or "".
func (t *Table) Component(name string) string {
	if slices.Contains(t.components, name) {
		return name
	}
	if to := successor(Path{name}); to != nil {
		return to[0]
	}
	return nearestName(name, t.components)
}

// children returns the names that the chart has at v directly below the path.
func (t *Table) children(v Version, path Path) []string {
	var names []string
	for _, k := range t.order {
		if len(k.Path) > len(path) && k.In(v) && slices.Equal(k.Path[:len(path)], path) {
			if name := k.Path[len(path)]; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// successors are the keys that took the place of others, or that are meant by names which articles and the ClusterPolicy
// use; an empty one means that nothing is to be set any more. From the chart's templates at v1.11.1 to v26.7.0.
var successors = []struct{ from, to, advice string }{
	{"driver.useOpenKernelModules", "driver.kernelModuleType", "write driver.kernelModuleType=open"},
	{"driver.licensingConfig.configMapName", "driver.licensingConfig.secretName", "put gridd.conf and the token into a Secret and name it in driver.licensingConfig.secretName"},
	{"driver.use_ocp_driver_toolkit", "operator.use_ocp_driver_toolkit", ""},
	{"driver.rollingUpdate", "daemonsets.rollingUpdate", ""},
	{"node-feature-discovery.master.extraLabelNs", "node-feature-discovery.master.config.extraLabelNs", ""},
	{"node-feature-discovery.enableNodeFeatureApi", "", "drop it: the NodeFeature API is the only way now"},
	{"cdi.default", "", "drop it: cdi.enabled alone makes CDI the default"},
	{"psp.enabled", "", "drop it: Kubernetes 1.25 removed PodSecurityPolicies; psa.enabled labels the namespace instead"},
	{"dcgm.hostPort", "", "drop it: the operator's Service nvidia-dcgm serves port 5555"},
	{"operator.defaultRuntime", "", "drop it: the operator asks each node for its runtime"},
	{"operator.initContainer", "", "drop it: the operands use the operator's own image"},
	{"gpuFeatureDiscovery", "gfd", ""},
	{"gpu-feature-discovery", "gfd", ""},
	{"containerToolkit", "toolkit", ""},
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
