package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

const sourceKubectl = "kubectl reference: label"

var kubectlVerbs = []string{"annotate", "api-resources", "apply", "config", "cordon", "create", "delete", "describe", "diff", "drain",
	"edit", "exec", "explain", "get", "label", "logs", "patch", "replace", "rollout", "run", "scale", "set", "taint", "top", "uncordon", "version", "wait"}

// kubectlValueFlags are the flags of kubectl, and of its label and patch, whose value is the next word.
var kubectlValueFlags = map[string]string{
	"--namespace": "-n", "--context": "", "--cluster": "", "--user": "", "--kubeconfig": "", "--server": "-s", "--token": "",
	"--as": "", "--as-group": "", "--as-uid": "", "--cache-dir": "", "--certificate-authority": "", "--client-certificate": "",
	"--client-key": "", "--request-timeout": "", "--tls-server-name": "", "--v": "-v", "--profile": "", "--profile-output": "",
	"--selector": "-l", "--patch": "-p", "--patch-file": "", "--type": "",
}

// writableLabels are the node labels of NVIDIA's that people set.
var writableLabels = []string{"nvidia.com/mig.config", "nvidia.com/device-plugin.config", "nvidia.com/gpu.workload.config",
	"nvidia.com/vgpu.config", "nvidia.com/gpu.deploy.operands", "nvidia.com/cc.mode", "nvidia.com/gpu-driver-upgrade-enabled", "nvidia.com/gpu-driver-upgrade-state",
	"nvidia.com/gpu-driver-upgrade.skip"}

// kubectl judges a kubectl command: its form, namespaces, node labels, and the manifest that it reads.
func (r *run) kubectl(s *input.Script, c input.Command) {
	if c.Words[0].Value == "kubernetes" {
		r.at(c.Words[0], "unknown-command", report.Failed, "kubernetes", "there is no such program", "write kubectl", sourceKubectl)
		r.replace(c.Words[0], "kubectl")
	}
	h := readFlags(c, kubectlValueFlags, nil)
	verb := ""
	if len(h.positional) > 0 {
		w := h.positional[0]
		verb = w.Value
		if !slices.Contains(kubectlVerbs, verb) {
			if near := report.Nearest(verb, kubectlVerbs); near != "" {
				r.at(w, "unknown-command", report.Failed, "kubectl "+verb, "kubectl has no such command", "write kubectl "+near, sourceKubectl)
				r.replace(w, near)
				verb = near
			}
		}
		h.positional = h.positional[1:]
	}
	r.kinds = append(r.kinds, strings.TrimSpace("kubectl "+verb))
	r.kubectlNamespace(verb, h)
	switch verb {
	case "label":
		r.label(h)
	case "patch":
		r.patch(s, h)
	case "apply", "create", "replace", "diff":
		if c.Stdin != nil {
			r.parse(text{name: r.name, data: []byte(c.Stdin.Text), line: c.Stdin.Line})
		}
	}
}

// kubectlNamespace judges the namespace that a command names.
func (r *run) kubectlNamespace(verb string, h *helmCommand) {
	for _, f := range h.all("--namespace") {
		if right := r.namespace(f.value, "namespace "+f.value.Value); right != f.value.Value {
			if len(f.words) == 1 {
				right = f.name + "=" + right
			}
			r.replace(f.words[len(f.words)-1], right)
		}
	}
	if verb == "create" && len(h.positional) > 1 && slices.Contains([]string{"namespace", "ns"}, h.positional[0].Value) {
		w := h.positional[1]
		if right := r.namespace(w, "namespace "+w.Value); right != w.Value {
			r.replace(w, right)
		}
	}
}

// label judges kubectl label node.
func (r *run) label(h *helmCommand) {
	touchesMIG := false
	for _, w := range h.positional {
		if key, value, found := strings.Cut(w.Value, "="); found && strings.Contains(key, "/") {
			touchesMIG = r.nodeLabel(w, key, value) || touchesMIG
		}
	}
	if f := h.flag("--overwrite"); touchesMIG && (f == nil || f.hasValue && f.value.Value != "true") {
		r.at(h.Words[0], "overwrite", report.Warning, "kubectl label", "the operator sets nvidia.com/mig.config=all-disabled first, and kubectl refuses to change a label without --overwrite", "add --overwrite", sourceLabels)
	}
}

// nodeLabel judges one label of a node, and reports whether it changes the node's MIG devices.
func (r *run) nodeLabel(w input.Word, key, value string) bool {
	if !slices.Contains(writableLabels, key) && !strings.HasPrefix(key, "nvidia.com/gpu.deploy.") {
		if near := nearestLabel(key); near != "" {
			r.at(w, "unknown-label", report.Failed, key, "nothing reads this label", "write "+near, sourceLabels)
			key = near
		}
	}
	if strings.HasPrefix(key, "nvidia.com/") {
		r.judged++
	}
	if key == sharing.ConfigLabel && !w.Dynamic {
		r.uses = append(r.uses, configUse{config: value, label: true, at: report.Row{File: r.name, Line: w.Line, Column: w.Col, Subject: w.Value}})
	}
	if key != "nvidia.com/mig.config" {
		return false
	}
	r.migConfig(w, value)
	return true
}

// migConfig judges the name of a MIG config that a node requests.
func (r *run) migConfig(w input.Word, name string) {
	rest, isAll := strings.CutPrefix(name, "all-")
	if !isAll || w.Dynamic {
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
