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

// compare returns where the containers of the DaemonSet are not what the ClusterPolicy specifies, and how many fields
// were compared. What the ClusterPolicy leaves open is not compared: the operator's own defaults, and images
// that it takes from its environment.
func compare(spec map[string]any, ds *appsv1.DaemonSet, op chart.Operand, operator chart.Version) ([]difference, int) {
	cdi, _ := chart.ParseVersion("v25.10.0")
	c := &comparison{spec: spec, ds: ds, op: op, modern: operator == (chart.Version{}) || !operator.Before(cdi)}
	for _, p := range c.containers() {
		c.image(p)
		if p.kind == "containers" && p.Name == op.Main().Name {
			c.main(p)
		}
	}
	return c.out, c.checked
}

// check compares a field of a container with a part of the ClusterPolicy.
func (c *comparison) check(p place, field string, path []string, from string, want, have any, equal bool) {
	c.checked++
	if !equal {
		at := append([]string{"spec", "template", "spec", p.kind, element(p.Name)}, path...)
		c.out = append(c.out, difference{p.kind + "[" + p.Name + "]." + field, at, from, want, have})
	}
}

// A place is a container with its kind.
type place struct {
	kind string // containers or initContainers
	*corev1.Container
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

// image compares a container's image with the part of the ClusterPolicy that names it. The operator refuses a part that
// is not whole, and the ClusterPolicy's state says so.
func (c *comparison) image(p place) {
	i := slices.IndexFunc(c.op.Containers, func(o chart.Container) bool { return o.Name == p.Name && o.Init == (p.kind == "initContainers") })
	if i < 0 || c.op.Containers[i].Image == "" {
		return
	}
	from, system := c.op.Containers[i].Image, c.op.Containers[i].System
	group, _ := get(c.spec, strings.Split(from, ".")...)
	part, _ := group.(map[string]any)
	repository, image, version := text(part, "repository"), text(part, "image"), text(part, "version")
	want := repository + "/" + image + ":" + version
	switch {
	case repository == "" && version == "":
		want = image // a whole reference, or nothing, where the operator's environment names it
	case repository == "" || image == "" || version == "":
		return
	case strings.HasPrefix(version, "sha256:"):
		want = repository + "/" + image + "@" + version
	}
	if want == "" {
		return
	}
	// the tag goes on with the kernel and the operating system
	c.check(p, "image", []string{"image"}, from, want, p.Image, p.Image == want || system && strings.HasPrefix(p.Image, want+"-"))
	if policy := text(part, "imagePullPolicy"); policy != "" && p.Name == c.op.Main().Name {
		c.check(p, "imagePullPolicy", []string{"imagePullPolicy"}, from+".imagePullPolicy", policy, string(p.ImagePullPolicy), policy == string(p.ImagePullPolicy))
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

// main compares the container that the settings of the operand describe.
func (c *comparison) main(p place) {
	wanted := c.variables()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		want := wanted[name]
		at := slices.IndexFunc(p.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		var have any
		if at >= 0 && p.Env[at].ValueFrom == nil {
			have = p.Env[at].Value
		}
		c.check(p, "env["+name+"]", []string{"env", element(name), "value"}, want[1], want[0], have, have == any(want[0]))
	}
	if args, found := get(c.spec, c.op.Settings, "args"); found && !empty(args) {
		var have any
		if len(p.Args) > 0 {
			have = p.Args
		}
		c.check(p, "args", []string{"args"}, c.op.Settings+".args", args, have, same(args, have))
	}
	value, found := get(c.spec, c.op.Settings, "resources")
	data, err := json.Marshal(value)
	var want corev1.ResourceRequirements
	if !found || value == nil || err != nil || json.Unmarshal(data, &want) != nil {
		return
	}
	have := corev1.ResourceRequirements{Requests: p.Resources.Requests, Limits: p.Resources.Limits}
	c.check(p, "resources", []string{"resources"}, c.op.Settings+".resources", value, have,
		equality.Semantic.DeepEqual(want.Limits, have.Limits) && equality.Semantic.DeepEqual(want.Requests, have.Requests))
}

// counted is "1 field" or "3 fields".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
