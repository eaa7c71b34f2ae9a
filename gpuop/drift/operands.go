package drift

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// An operand is what the operator makes one DaemonSet of, from controllers/object_controls.go and
// assets/ of gpu-operator v26.7.0; nvidia-kata-manager is of those before.
type operand struct {
	// daemonSet is the DaemonSet's name, or with prefix its beginning.
	daemonSet string
	prefix    bool
	// field is the part of the ClusterPolicy below spec.
	field string
	// main is the container that the part describes.
	main string
	// others are further containers, init containers too, whose image another part names.
	others map[string]string
	// off says that the operand does not run unless its part is enabled.
	off bool
}

var operands = []operand{
	{daemonSet: "nvidia-driver-daemonset", prefix: true, field: "driver", main: "nvidia-driver-ctr",
		others: map[string]string{"k8s-driver-manager": "driver.manager", "nvidia-fs-ctr": "gds", "nvidia-gdrcopy-ctr": "gdrcopy"}},
	{daemonSet: "nvidia-container-toolkit-daemonset", field: "toolkit", main: "nvidia-container-toolkit-ctr"},
	{daemonSet: "nvidia-operator-validator", field: "validator", main: "nvidia-operator-validator"},
	{daemonSet: "nvidia-device-plugin-daemonset", field: "devicePlugin", main: "nvidia-device-plugin",
		others: map[string]string{"config-manager": "devicePlugin", "config-manager-init": "devicePlugin"}},
	{daemonSet: "nvidia-device-plugin-mps-control-daemon", field: "devicePlugin", main: "mps-control-daemon-ctr",
		others: map[string]string{"config-manager": "devicePlugin", "config-manager-init": "devicePlugin", "mps-control-daemon-mounts": "devicePlugin"}},
	{daemonSet: "gpu-feature-discovery", field: "gfd", main: "gpu-feature-discovery",
		others: map[string]string{"config-manager": "devicePlugin", "config-manager-init": "devicePlugin"}},
	{daemonSet: "nvidia-dcgm", field: "dcgm", main: "nvidia-dcgm-ctr", off: true},
	{daemonSet: "nvidia-dcgm-exporter", field: "dcgmExporter", main: "nvidia-dcgm-exporter"},
	{daemonSet: "nvidia-mig-manager", field: "migManager", main: "nvidia-mig-manager"},
	{daemonSet: "nvidia-node-status-exporter", field: "nodeStatusExporter", main: "nvidia-node-status-exporter", off: true},
	{daemonSet: "nvidia-vgpu-manager-daemonset", prefix: true, field: "vgpuManager", main: "nvidia-vgpu-manager-ctr", off: true,
		others: map[string]string{"k8s-driver-manager": "vgpuManager.driverManager"}},
	{daemonSet: "nvidia-vgpu-device-manager", field: "vgpuDeviceManager", main: "nvidia-vgpu-device-manager", off: true},
	{daemonSet: "nvidia-vfio-manager", field: "vfioManager", main: "nvidia-vfio-manager", off: true,
		others: map[string]string{"k8s-driver-manager": "vfioManager.driverManager"}},
	{daemonSet: "nvidia-sandbox-device-plugin-daemonset", field: "sandboxDevicePlugin", main: "nvidia-sandbox-device-plugin-ctr", off: true},
	{daemonSet: "nvidia-kata-manager", field: "kataManager", main: "nvidia-kata-manager", off: true},
	{daemonSet: "nvidia-kata-sandbox-device-plugin-daemonset", field: "kataSandboxDevicePlugin", main: "nvidia-kata-sandbox-device-plugin-ctr", off: true},
	{daemonSet: "nvidia-sandbox-validator", field: "validator", main: "nvidia-sandbox-validator", off: true},
	{daemonSet: "nvidia-cc-manager", field: "ccManager", main: "nvidia-cc-manager", off: true},
}

// operandOf returns the operand that makes the DaemonSet.
func operandOf(name string) (operand, bool) {
	for _, o := range operands {
		if name == o.daemonSet || o.prefix && strings.HasPrefix(name, o.daemonSet+"-") {
			return o, true
		}
	}
	return operand{}, false
}

// A difference is a field of a DaemonSet that is not what the ClusterPolicy specifies.
type difference struct {
	// field is the DaemonSet's, as a reader knows it; path the same for managedFields.
	field string
	path  []string
	// from is the field of the ClusterPolicy, below spec.
	from       string
	want, have any
}

// A comparison is one DaemonSet held against the part of the ClusterPolicy that describes it.
type comparison struct {
	spec map[string]any // of the ClusterPolicy
	ds   *appsv1.DaemonSet
	op   operand
	// modern says that the operator is v25.10 or later, or unknown: CDI is native.
	modern bool
	// checked counts the fields that were compared.
	checked int
	out     []difference
}

// compare returns where the DaemonSet is not what the ClusterPolicy specifies, and how many fields were
// compared. What the ClusterPolicy leaves open is not compared: the operator's own defaults, and images
// that it takes from its environment.
func compare(spec map[string]any, ds *appsv1.DaemonSet, op operand, operator chart.Version) ([]difference, int) {
	cdi, _ := chart.ParseVersion("v25.10.0")
	c := &comparison{spec: spec, ds: ds, op: op, modern: operator == (chart.Version{}) || !operator.Before(cdi)}
	c.images()
	c.main()
	c.pod()
	return c.out, c.checked
}

func (c *comparison) check(field string, path []string, from string, want, have any, equal bool) {
	c.checked++
	if !equal {
		c.out = append(c.out, difference{field, append([]string{"spec", "template"}, path...), from, want, have})
	}
}

// part is a part of the ClusterPolicy's spec, by its dotted name.
func (c *comparison) part(name string) map[string]any {
	v, _ := get(c.spec, strings.Split(name, ".")...)
	m, _ := v.(map[string]any)
	return m
}

// A place is a container with its kind.
type place struct {
	kind string // containers or initContainers
	*corev1.Container
}

func (p place) at(field string) string { return p.kind + "[" + p.Name + "]." + field }

func (p place) path(names ...string) []string {
	return append([]string{"spec", p.kind, element(p.Name)}, names...)
}

func (c *comparison) containers() []place {
	pod := &c.ds.Spec.Template.Spec
	var out []place
	for i := range pod.InitContainers {
		out = append(out, place{"initContainers", &pod.InitContainers[i]})
	}
	for i := range pod.Containers {
		out = append(out, place{"containers", &pod.Containers[i]})
	}
	return out
}

// describes returns the part that names the container's image, "" where none is known.
func (c *comparison) describes(p place) string {
	switch {
	case p.kind == "containers" && p.Name == c.op.main:
		return c.op.field
	case c.op.others[p.Name] != "":
		return c.op.others[p.Name]
	case p.kind == "initContainers" && strings.Contains(p.Name, "validation"):
		return "validator"
	case p.Name == "nvidia-peermem-ctr":
		return c.op.field
	}
	return ""
}

func (c *comparison) images() {
	for _, p := range c.containers() {
		from := c.describes(p)
		if from == "" {
			continue
		}
		part := c.part(from)
		repository, image, version := text(part, "repository"), text(part, "image"), text(part, "version")
		want := ""
		switch {
		case repository == "" && version == "":
			want = image // a whole reference, or nothing, where the operator's environment names it
		case repository == "" || image == "" || version == "":
			continue // the operator refuses it, and the ClusterPolicy's state says so
		case strings.HasPrefix(version, "sha256:"):
			want = repository + "/" + image + "@" + version
		default:
			want = repository + "/" + image + ":" + version
		}
		if want == "" {
			continue
		}
		equal := p.Image == want
		if from == "driver" || from == "vgpuManager" || from == "gds" || from == "gdrcopy" {
			// the tag goes on with the kernel and the operating system
			equal = equal || strings.HasPrefix(p.Image, want+"-")
		}
		c.check(p.at("image"), p.path("image"), from, want, p.Image, equal)
		if policy := text(part, "imagePullPolicy"); policy != "" && p.Name == c.op.main {
			c.check(p.at("imagePullPolicy"), p.path("imagePullPolicy"), from+".imagePullPolicy", policy, string(p.ImagePullPolicy), policy == string(p.ImagePullPolicy))
		}
	}
}

// variables are the environment that the ClusterPolicy leads to, by name, with the field it comes from.
func (c *comparison) variables() map[string][2]string {
	out := map[string][2]string{}
	strategy := text(c.spec, "mig", "strategy")
	plugin := c.op.field == "devicePlugin"
	if plugin && strategy != "" {
		out["MIG_STRATEGY"] = [2]string{strategy, "mig.strategy"}
	}
	if c.op.main == "nvidia-device-plugin" && c.modern {
		if enabled, _ := get(c.spec, "cdi", "enabled"); enabled == true {
			out["DEVICE_LIST_STRATEGY"] = [2]string{"cdi-annotations,cdi-cri", "cdi.enabled"}
			out["CDI_ENABLED"] = [2]string{"true", "cdi.enabled"}
		}
	}
	if enabled, _ := get(c.spec, "dcgm", "enabled"); c.op.field == "dcgmExporter" && enabled == true {
		out["DCGM_REMOTE_HOSTENGINE_INFO"] = [2]string{"nvidia-dcgm:5555", "dcgm.enabled"}
	}
	if module := text(c.spec, "driver", "kernelModuleType"); c.op.field == "driver" && module != "" {
		out["KERNEL_MODULE_TYPE"] = [2]string{module, "driver.kernelModuleType"}
	}
	if c.op.main != "mps-control-daemon-ctr" { // that container has none of devicePlugin.env
		list, _ := get(c.spec, c.op.field, "env")
		items, _ := list.([]any)
		for _, item := range items {
			e, _ := item.(map[string]any)
			if name := text(e, "name"); name != "" {
				out[name] = [2]string{text(e, "value"), c.op.field + ".env"}
			}
		}
	}
	if c.op.field == "gfd" && strategy != "" {
		out["MIG_STRATEGY"] = [2]string{strategy, "mig.strategy"} // gfd.env does not win over it
	}
	return out
}

func (c *comparison) main() {
	for _, p := range c.containers() {
		if p.kind != "containers" || p.Name != c.op.main {
			continue
		}
		wanted := c.variables()
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			want := wanted[name]
			at := slices.IndexFunc(p.Env, func(e corev1.EnvVar) bool { return e.Name == name })
			var have any
			if at >= 0 && p.Env[at].ValueFrom == nil {
				have = p.Env[at].Value
			}
			c.check(p.at("env["+name+"]"), p.path("env", element(name), "value"), want[1], want[0], have, have == any(want[0]))
		}
		if args, found := get(c.spec, c.op.field, "args"); found && !empty(args) {
			have := stringsOf(p.Args)
			c.check(p.at("args"), p.path("args"), c.op.field+".args", args, have, same(args, have))
		}
		c.resources(p)
	}
	c.configs()
}

func (c *comparison) resources(p place) {
	value, found := get(c.spec, c.op.field, "resources")
	if !found || value == nil {
		return
	}
	var want corev1.ResourceRequirements
	if convert(value, &want) != nil {
		return
	}
	have := corev1.ResourceRequirements{Requests: p.Resources.Requests, Limits: p.Resources.Limits}
	c.check(p.at("resources"), p.path("resources"), c.op.field+".resources", value, plain(have),
		equality.Semantic.DeepEqual(want.Limits, have.Limits) && equality.Semantic.DeepEqual(want.Requests, have.Requests))
}

// configs are the ConfigMaps that the DaemonSet mounts.
func (c *comparison) configs() {
	mounted := func(volume string) (string, bool) {
		for _, v := range c.ds.Spec.Template.Spec.Volumes {
			if strings.Contains(v.Name, volume) && v.ConfigMap != nil {
				return v.ConfigMap.Name, true
			}
		}
		return "", false
	}
	at := func(volume, from, want string) {
		have, _ := mounted(volume)
		c.check("volumes["+volume+"].configMap.name", []string{"spec", "volumes", element(volume), "configMap", "name"}, from, want, have, have == want)
	}
	switch c.op.field {
	case "migManager":
		if name := text(c.spec, "migManager", "config", "name"); name != "" {
			at("mig-parted-config", "migManager.config.name", name)
		}
		if name := text(c.spec, "migManager", "gpuClientsConfig", "name"); name != "" {
			at("gpu-clients", "migManager.gpuClientsConfig.name", name)
		}
	case "dcgmExporter":
		// the chart's own name, "config" in its default, is used where the operator mounts one
		if name := text(c.spec, "dcgmExporter", "config", "name"); name != "" {
			at("metrics-config", "dcgmExporter.config.name", name)
		}
	case "devicePlugin", "gfd":
		if name := text(c.spec, "devicePlugin", "config", "name"); name != "" {
			at(name, "devicePlugin.config.name", name)
			c.defaultConfig()
		}
	}
}

func (c *comparison) defaultConfig() {
	want := text(c.spec, "devicePlugin", "config", "default")
	for _, p := range c.containers() {
		if p.Name != "config-manager" && p.Name != "config-manager-init" {
			continue
		}
		i := slices.IndexFunc(p.Env, func(e corev1.EnvVar) bool { return e.Name == "DEFAULT_CONFIG" })
		have := ""
		if i >= 0 {
			have = p.Env[i].Value
		}
		c.check(p.at("env[DEFAULT_CONFIG]"), p.path("env", element("DEFAULT_CONFIG"), "value"), "devicePlugin.config.default", want, have, want == have)
	}
}

// pod are the fields that spec.daemonsets sets on every DaemonSet.
func (c *comparison) pod() {
	pod := &c.ds.Spec.Template.Spec
	common := c.part("daemonsets")
	if list, _ := get(common, "tolerations"); !empty(list) {
		var want []corev1.Toleration
		if convert(list, &want) == nil {
			c.check("tolerations", []string{"spec", "tolerations"}, "daemonsets.tolerations", list, plain(pod.Tolerations), equality.Semantic.DeepEqual(want, pod.Tolerations))
		}
	}
	if want := text(common, "priorityClassName"); want != "" {
		c.check("priorityClassName", []string{"spec", "priorityClassName"}, "daemonsets.priorityClassName", want, pod.PriorityClassName, want == pod.PriorityClassName)
	}
	if want := text(c.spec, "operator", "runtimeClass"); want != "" && pod.RuntimeClassName != nil {
		c.check("runtimeClassName", []string{"spec", "runtimeClassName"}, "operator.runtimeClass", want, *pod.RuntimeClassName, want == *pod.RuntimeClassName)
	}
	secrets, _ := get(c.spec, c.op.field, "imagePullSecrets")
	list, _ := secrets.([]any)
	for _, name := range list {
		found := slices.ContainsFunc(pod.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return any(r.Name) == name })
		c.check("imagePullSecrets", []string{"spec", "imagePullSecrets"}, c.op.field+".imagePullSecrets", name, nil, found)
	}
	for _, kind := range []string{"labels", "annotations"} {
		have := c.ds.Spec.Template.Labels
		if kind == "annotations" {
			have = c.ds.Spec.Template.Annotations
		}
		value, _ := get(common, kind)
		wanted, _ := value.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			if kind == "labels" && (name == "app" || name == "app.kubernetes.io/part-of") {
				continue // the operator does not take these
			}
			is, found := have[name]
			var shown any
			if found {
				shown = is
			}
			c.check("template.metadata."+kind+"["+name+"]", []string{"metadata", kind, name}, "daemonsets."+kind, wanted[name], shown, any(is) == wanted[name])
		}
	}
	c.update(common)
}

func (c *comparison) update(common map[string]any) {
	have := c.ds.Spec.UpdateStrategy
	strategy := func(field, from string, want, is any, equal bool) {
		c.checked++
		if !equal {
			c.out = append(c.out, difference{field, []string{"spec", "updateStrategy"}, from, want, is})
		}
	}
	if text(common, "updateStrategy") == "OnDelete" {
		strategy("updateStrategy.type", "daemonsets.updateStrategy", "OnDelete", string(have.Type), have.Type == appsv1.OnDeleteDaemonSetStrategyType)
		return
	}
	want := text(common, "rollingUpdate", "maxUnavailable")
	if want == "" || c.op.field == "driver" {
		return
	}
	is := ""
	if have.RollingUpdate != nil && have.RollingUpdate.MaxUnavailable != nil {
		is = have.RollingUpdate.MaxUnavailable.String()
	}
	strategy("updateStrategy.rollingUpdate.maxUnavailable", "daemonsets.rollingUpdate.maxUnavailable", want, is, want == is)
}

// enabled reports whether the operator is to run the operand, and whether the ClusterPolicy says so at
// all.
func (o operand) enabled(spec map[string]any) (on, said bool) {
	if o.field == "validator" {
		return !o.off, !o.off // runs always, and in sandboxes where there are any
	}
	value, found := get(spec, o.field, "enabled")
	if b, isBool := value.(bool); found && isBool {
		return b, true
	}
	return false, false
}

func stringsOf(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// convert carries a value between JSON's types and those of Kubernetes.
func convert(value, into any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// plain is one of Kubernetes' types in JSON's; nil where it says nothing.
func plain(v any) any {
	var out any
	if convert(v, &out) != nil {
		return nil
	}
	return pruned(out)
}

// counted is "1 field" or "3 fields".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
