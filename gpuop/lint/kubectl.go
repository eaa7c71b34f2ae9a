package lint

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

var (
	kubectlVerbs = strings.Fields(`annotate api-resources apply config cordon create delete describe diff drain edit exec explain get label logs
		patch replace rollout run scale set taint top uncordon version wait`)
	// kubectlFlags are the flags of kubectl, and of its label and patch, with a value.
	kubectlFlags = flagsOf(`namespace,n context cluster user kubeconfig server,s token as request-timeout v,v selector,l patch,p type`, "")
)

// writableLabels are the node labels of NVIDIA's that people set.
var writableLabels = []string{"nvidia.com/mig.config", "nvidia.com/device-plugin.config", "nvidia.com/gpu.workload.config",
	"nvidia.com/vgpu.config", "nvidia.com/gpu.deploy.operands", "nvidia.com/cc.mode", "nvidia.com/gpu-driver-upgrade-enabled", "nvidia.com/gpu-driver-upgrade-state",
	"nvidia.com/gpu-driver-upgrade.skip"}

// kubectl judges a kubectl command: its form, namespaces, node labels, patches, and the manifest that it reads.
func (s *script) kubectl(c input.Command) {
	if w := c.Words[0]; w.Value == "kubernetes" {
		s.at(w, "unknown-command", report.Failed, "kubernetes", "there is no such program", "write kubectl")
		s.replace(w, "kubectl")
	}
	h := readFlags(c, kubectlFlags)
	verb := s.verb(h, "kubectl", kubectlVerbs)
	if f := h.flag("--namespace"); f != nil && s.namespace(f.value, "namespace "+f.value.Value) {
		s.give(f, model.OperatorNamespace)
	}
	judged := false
	switch verb {
	case "label":
		judged = s.label(h)
	case "patch":
		judged = s.patch(h)
	case "create":
		if len(h.positional) > 1 && slices.Contains([]string{"namespace", "ns"}, h.positional[0].Value) {
			if w := h.positional[1]; s.namespace(w, "namespace "+w.Value) {
				s.replace(w, model.OperatorNamespace)
			}
		}
	}
	s.unit(s.file, strings.TrimSpace("kubectl "+verb), judged)
	if c.Stdin != nil && slices.Contains([]string{"apply", "create", "replace", "diff"}, verb) {
		s.parse(doc{file: s.file, data: []byte(c.Stdin.Text), line: c.Stdin.Line})
	}
}

// label judges kubectl label node, and reports whether it sets a label of NVIDIA's.
func (s *script) label(h *call) (judged bool) {
	touchesMIG := false
	for _, w := range h.positional {
		key, value, found := strings.Cut(w.Value, "=")
		if !found || !strings.Contains(key, "/") {
			continue
		}
		if !slices.Contains(writableLabels, key) && !strings.HasPrefix(key, "nvidia.com/gpu.deploy.") {
			if near := nearestLabel(key); near != "" {
				s.at(w, "unknown-label", report.Failed, key, "nothing reads this label", "write "+near)
				key = near
			}
		}
		judged = judged || strings.HasPrefix(key, labelPrefix)
		switch {
		case key == sharing.ConfigLabel && !w.Dynamic:
			s.uses = append(s.uses, configUse{config: value, label: true, at: report.Row{File: s.file, Line: w.Line, Column: w.Col, Subject: w.Value}})
		case key == "nvidia.com/mig.config":
			touchesMIG = true
		}
	}
	if f := h.flag("--overwrite"); touchesMIG && (f == nil || f.hasValue && f.value.Value != "true") {
		s.at(h.Words[0], "overwrite", report.Warning, "kubectl label", "the operator sets nvidia.com/mig.config=all-disabled first, and kubectl refuses to change a label without --overwrite", "add --overwrite")
	}
	return judged
}

// patched is the operator's kind by one of the names that kubectl takes: clusterpolicies.nvidia.com/cluster-policy.
func patched(name string) kind {
	name, _, _ = strings.Cut(strings.ToLower(name), "/")
	switch strings.TrimSuffix(name, ".nvidia.com") {
	case "clusterpolicy", "clusterpolicies":
		return kindClusterPolicy
	case "nvidiadriver", "nvidiadrivers", "nvd":
		return kindNVIDIADriver
	case "gpucluster", "gpuclusters":
		return kindGPUCluster
	}
	return kindUnknown
}

// patch judges kubectl patch of one of the operator's resources, and reports whether it could.
func (s *script) patch(h *call) bool {
	resource := kindUnknown
	for _, w := range h.positional {
		if resource == kindUnknown {
			resource = patched(w.Value)
		}
	}
	text, strategy := h.flag("--patch"), h.flag("--type")
	d := doc{file: s.file}
	switch {
	case resource == kindUnknown:
		return false
	case text == nil || text.value.Value == "" || text.value.Dynamic:
		return false
	default:
		d.data, d.line = []byte(text.value.Value), max(text.value.Line, h.Line)-1
	}
	s.patchText(resource, d, strategy != nil && strategy.value.Value == "json")
	return true
}

// patchText judges a patch of one of the operator's resources.
func (r *run) patchText(resource kind, d doc, operations bool) {
	d.reader = &fields.Reader{}
	v := &validator{table: r.table, version: r.orLatest(), kind: string(resource), partial: true, reader: d.reader}
	if operations {
		v.jsonPatch(d.data)
	} else if spec := fields.Get(d.reader.Document(d.data), "spec"); spec != nil {
		v.value(specField, "spec", spec)
		r.configUses(newInstallation(r.table, v.version, model.Flatten(&fields.Reader{}, d.file, d.line, nil, spec)), "spec.")
	}
	for i := range d.reader.Findings {
		f := &d.reader.Findings[i]
		f.Line, f.Column = max(f.Line, 1), 0 // columns are those of the text, which stands in a line of another
	}
	r.report(&d, d.reader.Findings)
}

// jsonPatch judges the operations of a JSON patch.
func (v *validator) jsonPatch(data []byte) {
	var list []yaml.Node
	_ = yaml.Unmarshal(data, &list) // kubectl refuses what is no list
	for i := range list {
		if at := fields.Get(&list[i], "path"); at != nil && strings.HasPrefix(at.Value, "/spec/") {
			v.jsonPointer(at, fields.Get(&list[i], "value"))
		}
	}
}

// jsonPointer follows the path of an operation through the fields, and judges the value there.
func (v *validator) jsonPointer(at, value *yaml.Node) {
	f, where := specField, "spec"
	for name := range strings.SplitSeq(strings.TrimPrefix(path.Clean(at.Value), "/spec/"), "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		known := v.below(f)
		i := slices.IndexFunc(known, func(inner *chart.Field) bool { return inner.Name() == name })
		if i < 0 && f.Type == "object" && len(known) > 0 {
			v.unknown(f, known, where+"."+name, fields.Field{Name: name, Key: at, Value: value})
		}
		if i < 0 {
			return // below a list, too
		}
		f, where = known[i], where+"."+name
	}
	if value != nil {
		v.value(f, where, value)
	}
}
