package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
)

// apiVersions are the versions of the operator's resources.
var apiVersions = map[kind]string{kindClusterPolicy: "nvidia.com/v1", kindNVIDIADriver: "nvidia.com/v1alpha1", kindGPUCluster: "nvidia.com/v1alpha1"}

// resource judges a ClusterPolicy, NVIDIADriver or GPUCluster.
func (r *run) resource(d *doc) {
	v := &validator{table: r.table, version: r.orLatest(), kind: string(d.kind), partial: d.partial || r.isPatch(d.file),
		assumed: r.version == (chart.Version{}), reader: d.reader}
	if !slices.Contains(r.table.Kinds(v.version), v.kind) {
		r.noKind(d, v)
		return
	}
	api, k := fields.Get(d.root, "apiVersion"), fields.Get(d.root, "kind")
	if found, want := fields.Text(d.root, "apiVersion"), apiVersions[d.kind]; found != want {
		v.add("api-version", cmp.Or(api, d.root), "apiVersion", fmt.Sprintf("found %s; the %s is of %s", cmp.Or(found, "nothing"), d.kind, want), "write "+want)
	}
	if k.Value != v.kind {
		v.add("unknown-kind", k, "kind", "the API server knows no kind "+k.Value, "write "+v.kind)
	}
	if name := fields.Get(d.root, "metadata", "name"); d.kind == kindGPUCluster && (name == nil || name.Value != "gpu-cluster" && !strings.Contains(name.Value, input.Filled)) {
		v.add("singleton", cmp.Or(name, d.root), "metadata.name", "the API server refuses every other name: there is one GPUCluster", "write gpu-cluster")
	}
	if spec := fields.Get(d.root, "spec"); spec != nil {
		v.value(specField, "spec", spec)
		if selector := fields.Get(spec, "nodeSelector"); d.kind == kindNVIDIADriver && fields.Text(spec, "default") == "true" && selector != nil && len(selector.Content) > 0 {
			v.add("excludes", selector, "spec.nodeSelector", "the API server refuses it: the default driver is for the nodes that no other selects", "delete nodeSelector, or default: true")
		}
		r.rulesOf(d, spec, v.assumed)
	}
	r.report(d, v.reader.Findings)
}

// noKind reports a resource whose kind the release does not define.
func (r *run) noKind(d *doc, v *validator) {
	for _, later := range r.table.Versions() {
		if v.version.Before(later) && slices.Contains(r.table.Kinds(later), v.kind) {
			v.add("unknown-kind", d.root, "kind", fmt.Sprintf("the kind %s came with %s; %s does not have it", v.kind, later, v.version), "install "+later.String()+" or later")
			r.report(d, v.reader.Findings)
			return
		}
	}
}

// rulesOf applies the rules about values to a resource, whose fields have the names of the chart's keys.
func (r *run) rulesOf(d *doc, spec *yaml.Node, assumed bool) {
	ofDriver := d.kind == kindNVIDIADriver
	var prefix chart.Path
	if ofDriver {
		prefix = chart.Path{"driver"}
	}
	in := newInstallation(r.table, r.orLatest(), model.Flatten(&fields.Reader{}, d.file, d.line, prefix, spec))
	in.resource, in.assumed = true, assumed
	for _, s := range in.Settings {
		switch s.Name() {
		case "driver.gds.enabled", "driver.gdrcopy.enabled":
			s.Path, s.Called = s.Path[1:], ""
		}
	}
	in.images()
	if !ofDriver {
		in.dead()
	}
	in.contradictions()
	in.versions()
	for i := range in.mistakes {
		m := &in.mistakes[i]
		if ofDriver {
			m.Subject = strings.ReplaceAll(m.Subject, "driver.", "")
		}
		m.Subject = "spec." + m.Subject
	}
	r.add(d.file, in.findings()...)
	r.configUses(in, "spec.")
	if d.kind == kindClusterPolicy && fields.Get(spec, "daemonsets", "tolerations") != nil {
		r.tolerations(newInstallation(in.Table, in.Version, append(in.Settings, &model.Setting{Setting: chart.Set("nfd.enabled", false, "")})), d.file)
	}
}
