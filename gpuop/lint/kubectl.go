package lint

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

var (
	// kubectlFlags are the flags of kubectl, and of its label and patch, with a value.
	kubectlFlags = flagsOf(`namespace,n context cluster user kubeconfig server,s token as request-timeout v,v selector,l patch,p type`, "")
)

// writableLabels are the node labels of NVIDIA's that people set.
var writableLabels = []string{"nvidia.com/mig.config", "nvidia.com/device-plugin.config", "nvidia.com/gpu.workload.config",
	"nvidia.com/vgpu.config", "nvidia.com/gpu.deploy.operands", "nvidia.com/cc.mode", "nvidia.com/gpu-driver-upgrade-enabled", "nvidia.com/gpu-driver-upgrade-state",
	"nvidia.com/gpu-driver-upgrade.skip"}

// kubectl judges a kubectl command: its form, namespaces, node labels, patches, and the manifest that it reads.
func (s *script) kubectl(c input.Command) {
	h := readFlags(c, kubectlFlags)
	verb := h.takeVerb()
	if f := h.flag("--namespace"); f != nil && s.namespace(f.value, "namespace "+f.value.Value) {
		s.give(f, model.OperatorNamespace)
	}
	judged := false
	switch verb {
	case "label":
		judged = s.label(h)
	case "patch":
		s.kubectlPatch(h)
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

// kubectlPatch makes documents of what kubectl patch changes of one of the operator's resources.
func (s *script) kubectlPatch(h *call) {
	d := doc{file: s.file}
	for _, w := range h.positional {
		d.kind = cmp.Or(d.kind, patched(w.Value))
	}
	if text := h.flag("--patch"); d.kind != kindUnknown && text != nil && !text.value.Dynamic {
		d.data, d.line = []byte(text.value.Value), max(text.value.Line, h.Line)-1
		s.patch(d)
	}
}

// patch makes documents of a patch: a part of an object, or operations as JSON Patch (RFC 6902) has them.
func (r *run) patch(d doc) {
	add := func(root *yaml.Node) {
		inner := d
		inner.root, inner.reader, inner.partial = root, &fields.Reader{}, true
		if inner.kind = cmp.Or(d.kind, detect(r.table, root)); slices.Contains(patchable, inner.kind) {
			r.documents = append(r.documents, &inner)
		}
	}
	var operations []yaml.Node
	if yaml.Unmarshal(d.data, &operations) != nil {
		var reader fields.Reader
		if root := reader.Document(d.data); root != nil {
			add(root)
		} else if d.kind != kindUnknown {
			r.report(&d, reader.Findings)
		}
	}
	for i := range operations {
		at, n := fields.Get(&operations[i], "path"), fields.Get(&operations[i], "value")
		if at == nil || elementOf.MatchString(at.Value) {
			continue
		}
		n = cmp.Or(n, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"})
		for _, name := range slices.Backward(strings.Split(path.Clean(strings.Trim(at.Value, "/")), "/")) {
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.NewReplacer("~1", "/", "~0", "~").Replace(name), Line: at.Line}
			n = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{key, n}, Line: at.Line}
		}
		add(n)
	}
}

var (
	// patchable are the kinds of which parts are judged.
	patchable = []kind{kindClusterPolicy, kindNVIDIADriver, kindGPUCluster, kindCarrier, kindConfigMap}
	// elementOf matches the path of an operation on an element of a list, which is not judged.
	elementOf = regexp.MustCompile(`/(\d+|-)(/|$)`)
)
