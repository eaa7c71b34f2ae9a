package lint

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// patched are the kinds of the operator by the names that kubectl takes.
var patched = map[string]kind{
	"clusterpolicy": kindClusterPolicy, "clusterpolicies": kindClusterPolicy, "clusterpolicies.nvidia.com": kindClusterPolicy, "clusterpolicy.nvidia.com": kindClusterPolicy,
	"nvidiadriver": kindNVIDIADriver, "nvidiadrivers": kindNVIDIADriver, "nvidiadrivers.nvidia.com": kindNVIDIADriver, "nvidiadriver.nvidia.com": kindNVIDIADriver, "nvd": kindNVIDIADriver,
	"gpucluster": kindGPUCluster, "gpuclusters": kindGPUCluster, "gpuclusters.nvidia.com": kindGPUCluster,
}

// patch judges kubectl patch of one of the operator's resources.
func (r *run) patch(s *input.Script, h *helmCommand) {
	var resource kind
	for _, w := range h.positional {
		name, _, _ := strings.Cut(w.Value, "/")
		resource = cmp.Or(resource, patched[strings.ToLower(name)])
	}
	value := func(name string) input.Word {
		if f := h.flag(name); f != nil {
			return f.value
		}
		return input.Word{}
	}
	text, file, strategy := value("--patch"), value("--patch-file"), value("--type").Value
	data := []byte(text.Value)
	switch {
	case resource == "":
		return
	case file.Value != "":
		var ok bool
		if data, ok = r.open(s, file, file.Value); !ok {
			return
		}
		defer func(name string) { r.name = name }(r.name)
		r.name, text.Line, h.Line = file.Value, 1, 1
	case text.Value == "" || text.Dynamic:
		return
	}
	r.patchText(resource, data, strategy == "json", max(text.Line, h.Line)-1)
}

// patchText judges a patch of one of the operator's resources, which begins below so many lines of the file.
func (r *run) patchText(resource kind, data []byte, operations bool, line int) {
	r.judged++
	reader := &fields.Reader{}
	v := &validator{table: r.table, version: r.orLatest(), kind: string(resource), partial: true, reader: reader}
	if operations {
		r.jsonPatch(v, data)
	} else if root := reader.Document(data); root != nil {
		if spec := fields.Get(root, "spec"); spec != nil {
			v.value(specField, "spec", spec)
			settings := model.Flatten(&fields.Reader{}, r.name, line, nil, spec)
			r.configUses(newInstallation(r.table, v.version, settings), "spec.")
		}
	}
	for _, f := range reader.Findings {
		f.File, f.Column, f.Line = r.name, 0, line+max(f.Line, 1)
		r.findings = append(r.findings, f)
	}
}

var patchOperations = []string{"add", "remove", "replace", "move", "copy", "test"}

// jsonPatch judges the operations of a JSON patch.
func (r *run) jsonPatch(v *validator, data []byte) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.SequenceNode {
		v.reader.Add("wrong-type", report.Failed, nil, "patch", "a JSON patch is a list of operations", "")
		return
	}
	for _, op := range doc.Content[0].Content {
		if name := fields.Get(op, "op"); name == nil || !slices.Contains(patchOperations, name.Value) {
			v.add("wrong-value", op, "op", "want one of "+alternatives(patchOperations), "")
		}
		at := fields.Get(op, "path")
		if at == nil || !strings.HasPrefix(at.Value, "/spec/") {
			continue
		}
		r.jsonPointer(v, at, fields.Get(op, "value"))
	}
}

// jsonPointer follows the path of an operation through the fields, and judges the value there.
func (r *run) jsonPointer(v *validator, at, value *yaml.Node) {
	f, where := specField, "spec"
	for name := range strings.SplitSeq(strings.TrimPrefix(path.Clean(at.Value), "/spec/"), "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		known := v.below(f)
		switch {
		case len(known) == 0:
			return
		case f.Type == "object":
			i := slices.IndexFunc(known, func(inner *chart.Field) bool { return inner.Name() == name })
			if i < 0 {
				v.unknown(f, known, where+"."+name, fields.Field{Name: name, Key: at, Value: value})
				return
			}
			f, where = known[i], where+"."+name
		default:
			f, where = known[0], known[0].Path
		}
	}
	if value != nil {
		v.value(f, where, value)
	}
}
