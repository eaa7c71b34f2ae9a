package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/finding"
)

// A taint of a GPU node.
type taint struct{ key, value, effect string }

func (t taint) String() string {
	if t.value == "" {
		return t.key + ":" + t.effect
	}
	return t.key + "=" + t.value + ":" + t.effect
}

// A toleration of a pod.
type toleration struct{ key, operator, value, effect string }

var taintText = regexp.MustCompile(`^([A-Za-z0-9./_-]+)(?:=([A-Za-z0-9._-]*))?:(NoSchedule|PreferNoSchedule|NoExecute)$`)

// parseTaint reads a taint as kubectl taint writes it.
func parseTaint(s string) (taint, error) {
	m := taintText.FindStringSubmatch(s)
	if m == nil {
		return taint{}, fmt.Errorf("%w %q, want key[=value]:NoSchedule, PreferNoSchedule or NoExecute", ErrTaint, s)
	}
	return taint{m[1], m[2], m[3]}, nil
}

// tolerates follows the scheduler: an empty key tolerates all keys, an empty effect all effects.
func (t toleration) tolerates(n taint) bool {
	if t.effect != "" && t.effect != n.effect || t.key != "" && t.key != n.key {
		return false
	}
	switch t.operator {
	case "Exists":
		return t.value == ""
	case "", "Equal":
		return t.key != "" && t.value == n.value
	}
	return false
}

func covered(tolerations []toleration, n taint) bool {
	if n.effect == "PreferNoSchedule" {
		return true
	}
	for _, t := range tolerations {
		if t.tolerates(n) {
			return true
		}
	}
	return false
}

// nodeTaints are the taints of a Node that keep pods away for good: those that Kubernetes itself sets on trouble go.
func nodeTaints(root *yaml.Node) []taint {
	list := get(root, "spec", "taints")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	var out []taint
	for _, n := range list.Content {
		t := taint{str(n, "key"), str(n, "value"), str(n, "effect")}
		if t.key != "" && !strings.HasPrefix(t.key, "node.kubernetes.io/") && !strings.HasPrefix(t.key, "node.cloudprovider.kubernetes.io/") {
			out = append(out, t)
		}
	}
	return out
}

// tolerationsOf reads a decoded list of tolerations.
func tolerationsOf(value any) []toleration {
	list, _ := value.([]any)
	var out []toleration
	for _, e := range list {
		m, _ := e.(map[string]any)
		text := func(k string) string { return scalarText(m[k]) }
		out = append(out, toleration{text("key"), text("operator"), text("value"), text("effect")})
	}
	return out
}

// tolerations compares the taints of the GPU nodes with what the operands and the discovery's worker tolerate.
func (r *run) tolerations(in *installation) {
	for _, p := range []struct{ path, what string }{
		{"daemonsets.tolerations", "the operands"},
		{"node-feature-discovery.worker.tolerations", "Node Feature Discovery's worker, so that the operator never learns of the GPU"},
	} {
		value, known := in.value(p.path)
		if !known || p.path == "node-feature-discovery.worker.tolerations" && in.is("nfd.enabled", false) {
			continue
		}
		have := tolerationsOf(value)
		seen := map[taint]bool{}
		for _, t := range r.taints {
			if seen[t] || covered(have, t) {
				continue
			}
			seen[t] = true
			f := finding.Finding{
				ID: "taint", Severity: finding.Error, Subject: p.path, File: r.name,
				Reason: fmt.Sprintf("the taint %s of the GPU nodes is not tolerated: it keeps away %s (DaemonSets show DESIRED 0)", t, p.what),
				Fix:    "add {key: " + t.key + ", operator: Exists, effect: " + t.effect + "} to the chart's default", Source: sourceValues,
			}
			if s := in.explicit(p.path); s != nil {
				f.File, f.Line, f.Column = s.file, s.line, s.column
			}
			r.findings = append(r.findings, f)
		}
	}
}

// podTolerations reads the tolerations of a pod's spec.
func podTolerations(spec *yaml.Node) []toleration {
	list := get(spec, "tolerations")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	var out []toleration
	for _, n := range list.Content {
		n = fields.Resolve(n)
		out = append(out, toleration{str(n, "key"), str(n, "operator"), str(n, "value"), str(n, "effect")})
	}
	return out
}

// isTolerations reports whether the setting is a list of tolerations.
func isTolerations(s *setting) bool { return s.path[len(s.path)-1] == "tolerations" }

// problems says why the API server refuses a pod with the toleration: a field, what is wrong and what to write.
func (t toleration) problems() (out [][3]string) {
	operators, effects := []string{"Exists", "Equal", "Lt", "Gt"}, []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}
	near := func(word string, known []string) string {
		if n := finding.Nearest(word, known); n != "" {
			return "write " + n
		}
		for _, k := range known {
			if strings.EqualFold(k, word) {
				return "write " + k
			}
		}
		return ""
	}
	if t.operator != "" && !slices.Contains(operators, t.operator) {
		out = append(out, [3]string{"operator", fmt.Sprintf("found %q, want Exists or Equal: the API server refuses the pods", t.operator), near(t.operator, operators)})
	}
	if t.effect != "" && !slices.Contains(effects, t.effect) {
		out = append(out, [3]string{"effect", fmt.Sprintf("found %q, want %s: the API server refuses the pods", t.effect, alternatives(effects)), near(t.effect, effects)})
	}
	if t.operator == "Exists" && t.value != "" {
		out = append(out, [3]string{"value", "the operator Exists takes no value: the API server refuses the pods", "delete value, or write operator: Equal"})
	}
	if t.key == "" && t.operator != "Exists" {
		out = append(out, [3]string{"key", "without a key the operator must be Exists: the API server refuses the pods", "name the taint's key"})
	}
	return out
}

// tolerationValues judges the lists of tolerations in the values.
func (in *installation) tolerationValues() {
	done := map[string]bool{}
	for _, s := range in.settings {
		if !isTolerations(s) || done[s.path.String()] {
			continue
		}
		done[s.path.String()] = true
		value, ok := in.value(s.path.String())
		if !ok {
			continue
		}
		for i, t := range tolerationsOf(value) {
			for _, p := range t.problems() {
				in.add("toleration", finding.Error, p[1], p[2], sourceTolerations, s)
				m := &in.mistakes[len(in.mistakes)-1]
				m.Subject = fmt.Sprintf("%s[%d].%s", s.path, i, p[0])
				if s.node != nil && i < len(fields.Resolve(s.node).Content) {
					n := fields.Resolve(s.node).Content[i]
					m.Line, m.Column = n.Line+s.shift, n.Column
				}
			}
		}
	}
}

const sourceTolerations = "Kubernetes API: Toleration"
