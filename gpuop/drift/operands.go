package drift

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// operands are those of the operator that runs; where nothing says which it is, the newest.
func (j *judging) operands(version chart.Version) []chart.Operand {
	v, _, err := j.Table.Resolve(version.String())
	if err != nil {
		v = j.Table.Latest()
	}
	return j.Table.Operands(v)
}

// makes reports whether an operand makes the DaemonSet: behind the name of one with the operating system in its tag, the
// system, a kernel or an NVIDIADriver may follow.
func makes(o chart.Operand, name string) bool {
	return name == o.DaemonSet || o.Main().System && strings.HasPrefix(name, o.DaemonSet+"-")
}

// excluded says why the operator does not make the operand of this ClusterPolicy, and the key that says so; both are empty
// where it may. said is false where the ClusterPolicy leaves a condition open.
func excluded(o chart.Operand, spec map[string]any) (why string, key []string, said bool) {
	said = true
	for _, c := range o.When {
		key := strings.Split(c.Key(), ".")
		value, found := get(spec, key...)
		switch {
		case c == chart.Never:
			return "is read by a release of the operator that makes nothing of " + o.Settings, []string{o.Settings}, true
		case !found || value == nil:
			said = false
		case !c.Holds(fmt.Sprint(value), false):
			return fmt.Sprintf("says %s=%v", c.Key(), value), key, true
		}
	}
	return "", nil, said
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
	op   chart.Operand
	// modern says that the operator is v25.10 or later, or unknown: CDI is native.
	modern bool
	// checked counts the fields that were compared.
	checked int
	out     []difference
}

// compare returns where the DaemonSet is not what the ClusterPolicy specifies, and how many fields were
// compared. What the ClusterPolicy leaves open is not compared: the operator's own defaults, and images
// that it takes from its environment.
func compare(spec map[string]any, ds *appsv1.DaemonSet, op chart.Operand, operator chart.Version) ([]difference, int) {
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

// described returns the part that names the container's image, and whether the operator ends its tag in the operating
// system; "" where no part is known.
func (c *comparison) described(p place) (from string, system bool) {
	i := slices.IndexFunc(c.op.Containers, func(o chart.Container) bool { return o.Name == p.Name && o.Init == (p.kind == "initContainers") })
	if i < 0 {
		return "", false
	}
	return c.op.Containers[i].Image, c.op.Containers[i].System
}

func (c *comparison) images() {
	for _, p := range c.containers() {
		from, system := c.described(p)
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
		if system { // the tag goes on with the kernel and the operating system
			equal = equal || strings.HasPrefix(p.Image, want+"-")
		}
		c.check(p.at("image"), p.path("image"), from, want, p.Image, equal)
		if policy := text(part, "imagePullPolicy"); policy != "" && p.Name == c.op.Main().Name {
			c.check(p.at("imagePullPolicy"), p.path("imagePullPolicy"), from+".imagePullPolicy", policy, string(p.ImagePullPolicy), policy == string(p.ImagePullPolicy))
		}
	}
}

// variables are the environment that the ClusterPolicy leads to, by name, with the field it comes from.
func (c *comparison) variables() map[string][2]string {
	out := map[string][2]string{}
	strategy := text(c.spec, "mig", "strategy")
	plugin := c.op.Settings == "devicePlugin"
	if plugin && strategy != "" {
		out["MIG_STRATEGY"] = [2]string{strategy, "mig.strategy"}
	}
	if c.op.Main().Name == "nvidia-device-plugin" && c.modern {
		if enabled, _ := get(c.spec, "cdi", "enabled"); enabled == true {
			out["DEVICE_LIST_STRATEGY"] = [2]string{"cdi-annotations,cdi-cri", "cdi.enabled"}
			out["CDI_ENABLED"] = [2]string{"true", "cdi.enabled"}
		}
	}
	if enabled, _ := get(c.spec, "dcgm", "enabled"); c.op.Settings == "dcgmExporter" && enabled == true {
		out["DCGM_REMOTE_HOSTENGINE_INFO"] = [2]string{"nvidia-dcgm:5555", "dcgm.enabled"}
	}
	if module := text(c.spec, "driver", "kernelModuleType"); c.op.Settings == "driver" && module != "" {
		out["KERNEL_MODULE_TYPE"] = [2]string{module, "driver.kernelModuleType"}
	}
	if c.op.Main().Name != "mps-control-daemon-ctr" { // that container has none of devicePlugin.env
		list, _ := get(c.spec, c.op.Settings, "env")
		items, _ := list.([]any)
		for _, item := range items {
			e, _ := item.(map[string]any)
			if name := text(e, "name"); name != "" {
				out[name] = [2]string{text(e, "value"), c.op.Settings + ".env"}
			}
		}
	}
	if c.op.Settings == "gfd" && strategy != "" {
		out["MIG_STRATEGY"] = [2]string{strategy, "mig.strategy"} // gfd.env does not win over it
	}
	return out
}

func (c *comparison) main() {
	for _, p := range c.containers() {
		if p.kind != "containers" || p.Name != c.op.Main().Name {
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
		if args, found := get(c.spec, c.op.Settings, "args"); found && !empty(args) {
			have := stringsOf(p.Args)
			c.check(p.at("args"), p.path("args"), c.op.Settings+".args", args, have, same(args, have))
		}
		c.resources(p)
	}
	c.configs()
}

func (c *comparison) resources(p place) {
	value, found := get(c.spec, c.op.Settings, "resources")
	if !found || value == nil {
		return
	}
	var want corev1.ResourceRequirements
	if convert(value, &want) != nil {
		return
	}
	have := corev1.ResourceRequirements{Requests: p.Resources.Requests, Limits: p.Resources.Limits}
	c.check(p.at("resources"), p.path("resources"), c.op.Settings+".resources", value, plain(have),
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
	switch c.op.Settings {
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
	secrets, _ := get(c.spec, c.op.Settings, "imagePullSecrets")
	list, _ := secrets.([]any)
	for _, name := range list {
		found := slices.ContainsFunc(pod.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return any(r.Name) == name })
		c.check("imagePullSecrets", []string{"spec", "imagePullSecrets"}, c.op.Settings+".imagePullSecrets", name, nil, found)
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
	if want == "" || c.op.Settings == "driver" {
		return
	}
	is := ""
	if have.RollingUpdate != nil && have.RollingUpdate.MaxUnavailable != nil {
		is = have.RollingUpdate.MaxUnavailable.String()
	}
	strategy("updateStrategy.rollingUpdate.maxUnavailable", "daemonsets.rollingUpdate.maxUnavailable", want, is, want == is)
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
