package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

const sourceKubectl = "kubectl reference: label"

var kubectlVerbs = []string{"annotate", "api-resources", "apply", "config", "cordon", "create", "delete", "describe", "diff", "drain",
	"edit", "exec", "explain", "get", "label", "logs", "patch", "replace", "rollout", "run", "scale", "set", "taint", "top", "uncordon", "version", "wait"}

// kubectlValueFlags are the flags of every kubectl command whose value is the next word.
var kubectlValueFlags = []string{"-n", "--namespace", "--context", "--cluster", "--user", "--kubeconfig", "-s", "--server", "--token", "--as", "--as-group", "--as-uid",
	"--cache-dir", "--certificate-authority", "--client-certificate", "--client-key", "--request-timeout", "--tls-server-name", "-v", "--v", "--profile", "--profile-output"}

// writableLabels are the node labels of NVIDIA's that people set.
var writableLabels = []string{"nvidia.com/mig.config", "nvidia.com/device-plugin.config", "nvidia.com/gpu.workload.config",
	"nvidia.com/vgpu.config", "nvidia.com/gpu.deploy.operands", "nvidia.com/cc.mode", "nvidia.com/gpu-driver-upgrade-enabled"}

// kubectl judges a kubectl command: its form, namespaces, node labels, and the manifest that it reads.
func (r *run) kubectl(s *script, c command) {
	if c.words[0].value == "kubernetes" {
		r.at(c.words[0], "unknown-command", report.Failed, "kubernetes", "there is no such program", "write kubectl", sourceKubectl)
		r.replace(c.words[0], "kubectl")
	}
	verb := ""
	var rest []word
	for i := 1; i < len(c.words); i++ {
		w := c.words[i]
		if slices.Contains(kubectlValueFlags, w.value) {
			i++
			continue
		}
		if !strings.HasPrefix(w.value, "-") && strings.TrimSpace(w.value) != "" {
			verb, rest = w.value, c.words[i+1:]
			if !slices.Contains(kubectlVerbs, verb) {
				if near := report.Nearest(verb, kubectlVerbs); near != "" {
					r.at(w, "unknown-command", report.Failed, "kubectl "+verb, "kubectl has no such command", "write kubectl "+near, sourceKubectl)
					r.replace(w, near)
					verb = near
				}
			}
			break
		}
	}
	r.kinds = append(r.kinds, strings.TrimSpace("kubectl "+verb))
	r.kubectlNamespace(verb, c.words, rest)
	switch verb {
	case "label":
		r.label(c, rest)
	case "patch":
		r.patch(s, c, rest)
	case "apply", "create", "replace", "diff":
		if c.stdin != nil {
			r.parse(text{name: r.name, data: []byte(c.stdin.text), line: c.stdin.line})
		}
	}
}

// kubectlNamespace judges the namespace that a command names.
func (r *run) kubectlNamespace(verb string, words, rest []word) {
	for i, w := range words {
		name := ""
		at := w
		switch {
		case (w.value == "-n" || w.value == "--namespace") && i+1 < len(words):
			at = words[i+1]
			name = at.value
		case strings.HasPrefix(w.value, "--namespace="):
			name = strings.TrimPrefix(w.value, "--namespace=")
			at.value = name
		case verb == "create" && len(rest) > 1 && (rest[0].value == "namespace" || rest[0].value == "ns") && w == rest[1]:
			name = w.value
		}
		if name == "" {
			continue
		}
		if right := r.namespace(at, "namespace "+name); right != name {
			fixed := right
			if strings.HasPrefix(w.value, "--namespace=") {
				fixed = "--namespace=" + right
			}
			r.replace(at, fixed)
		}
	}
}

// label judges kubectl label node.
func (r *run) label(c command, rest []word) {
	overwrite, touchesMIG := false, false
	for _, w := range rest {
		overwrite = overwrite || w.value == "--overwrite" || w.value == "--overwrite=true"
	}
	for i, w := range rest {
		text := w.value
		key, value, found := strings.Cut(text, "=")
		if !found || strings.HasPrefix(text, "-") || !strings.Contains(key, "/") || i > 0 && (rest[i-1].value == "-l" || rest[i-1].value == "--selector") {
			continue
		}
		touchesMIG = r.nodeLabel(w, key, value) || touchesMIG
	}
	if touchesMIG && !overwrite {
		r.at(c.words[0], "overwrite", report.Warning, "kubectl label", "the operator sets nvidia.com/mig.config=all-disabled first, and kubectl refuses to change a label without --overwrite", "add --overwrite", sourceLabels)
	}
}

// nodeLabel judges one label of a node, and reports whether it changes the node's MIG devices.
func (r *run) nodeLabel(w word, key, value string) bool {
	if !slices.Contains(writableLabels, key) && !strings.HasPrefix(key, "nvidia.com/gpu.deploy.") {
		if near := nearestLabel(key); near != "" {
			r.at(w, "unknown-label", report.Failed, key, "nothing reads this label", "write "+near, sourceLabels)
			key = near
		}
	}
	if strings.HasPrefix(key, "nvidia.com/") {
		r.judged++
	}
	if key == sharing.ConfigLabel && !w.dynamic {
		r.labels = append(r.labels, labelUse{value, report.Row{File: r.name, Line: w.line, Column: w.col, Subject: w.value}})
	}
	if key != "nvidia.com/mig.config" {
		return false
	}
	r.migConfig(w, value)
	return true
}

// migConfig judges the name of a MIG config that a node requests.
func (r *run) migConfig(w word, name string) {
	rest, isAll := strings.CutPrefix(name, "all-")
	if !isAll || w.dynamic {
		return
	}
	known := []string{"all-disabled", "all-enabled", "all-balanced"}
	for _, p := range mig.Profiles() {
		known = append(known, mig.ConfigName(p))
	}
	if slices.Contains(known, name) || slices.Contains(known, "all-"+strings.ReplaceAll(rest, "+", ".")) && !strings.Contains(rest, "+") {
		return
	}
	fix := write(name, known, "see gpuop mig profiles, or use the name of a config of your own")
	r.at(w, "mig-config", report.Warning, "nvidia.com/mig.config="+name, fmt.Sprintf("no config of the MIG manager's own has the name %q", name), fix, "mig-parted config-default.yaml")
}
