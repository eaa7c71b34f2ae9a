package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
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
	if want, have := apiVersions[d.kind], fields.Get(d.root, "apiVersion"); have == nil || have.Value != want {
		at, found := d.root, "nothing"
		if have != nil {
			at, found = have, have.Value
		}
		v.add("api-version", at, "apiVersion", fmt.Sprintf("found %s; the %s is of %s", found, d.kind, want), "write "+want)
	}
	if k := fields.Get(d.root, "kind"); k.Value != string(d.kind) {
		v.add("unknown-kind", k, "kind", "the API server knows no kind "+k.Value, "write "+string(d.kind))
	}
	spec := fields.Get(d.root, "spec")
	if spec != nil {
		v.value(specField, "spec", spec)
	}
	if name := fields.Get(d.root, "metadata", "name"); d.kind == kindGPUCluster && (name == nil || name.Value != "gpu-cluster") {
		at := d.root
		if name != nil {
			at = name
		}
		v.add("singleton", at, "metadata.name", "the API server refuses every other name: there is one GPUCluster", "write gpu-cluster")
	}
	if spec != nil {
		r.rulesOf(d, spec, v)
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
func (r *run) rulesOf(d *doc, spec *yaml.Node, v *validator) {
	prefix := chart.Path(nil)
	if d.kind == kindNVIDIADriver {
		r.driver(d, spec, v)
		prefix = chart.Path{"driver"}
	}
	in := newInstallation(r.table, r.orLatest(), model.Flatten(&fields.Reader{}, d.file, d.line, prefix, spec))
	in.resource, in.assumed = true, v.assumed
	for _, s := range in.Settings {
		switch s.Name() {
		case "driver.gds.enabled", "driver.gdrcopy.enabled":
			s.Path, s.Called = s.Path[1:], ""
		}
	}
	in.images()
	if d.kind != kindNVIDIADriver {
		in.dead()
	}
	in.contradictions()
	in.versions()
	for i := range in.mistakes {
		m := &in.mistakes[i]
		if d.kind == kindNVIDIADriver {
			m.Subject = strings.ReplaceAll(m.Subject, "driver.", "")
		}
		m.Subject = "spec." + m.Subject
	}
	r.findings = append(r.findings, in.findings()...)
	r.configUses(in, "spec.")
	if d.kind == kindClusterPolicy && fields.Get(spec, "daemonsets", "tolerations") != nil {
		r.name = d.file
		r.tolerations(newInstallation(in.Table, in.Version, append(in.Settings, &model.Setting{Setting: chart.Set("nfd.enabled", false, "")})))
	}
}

// driver judges what the definition of NVIDIADriver says by rules instead of fields.
func (r *run) driver(d *doc, spec *yaml.Node, v *validator) {
	if selector := fields.Get(spec, "nodeSelector"); fields.Text(spec, "default") == "true" && selector != nil && len(selector.Content) > 0 {
		v.add("excludes", selector, "spec.nodeSelector", "the API server refuses it: the default driver is for the nodes that no other selects", "delete nodeSelector, or default: true")
	}
	name := fields.Text(d.root, "metadata", "name")
	if name == "" {
		return
	}
	if r.drivers == nil {
		r.drivers = map[string]*yaml.Node{}
	}
	before, seen := r.drivers[name]
	r.drivers[name] = spec
	if !seen {
		return
	}
	for _, field := range []string{"driverType", "usePrecompiled"} {
		if was, is := fields.Text(before, field), fields.Text(spec, field); was != is {
			at := fields.Get(spec, field)
			if at == nil {
				at = spec
			}
			v.add("immutable", at, "spec."+field, fmt.Sprintf("was %q in the NVIDIADriver %s before, and cannot change", was, name), "delete the NVIDIADriver and create it again")
		}
	}
}
