package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// switches are the groups that do nothing while a key is false, but for some names; chart.Operand has the operands.
var switches = []struct {
	key, group string
	except     []string
}{
	{"nfd.enabled", "node-feature-discovery", nil},
	{"dcgmExporter.serviceMonitor.enabled", "dcgmExporter.serviceMonitor", []string{"enabled"}},
	{"sandboxWorkloads.enabled", "sandboxWorkloads", []string{"enabled"}},
	{"gpuCluster.deployCR", "draDriver", nil},
	{"driver.rdma.enabled", "driver.rdma", []string{"enabled"}},
	{"driver.upgradePolicy.autoUpgrade", "driver.upgradePolicy", []string{"autoUpgrade"}},
	{"driver.nvidiaDriverCRD.enabled", "driver.nvidiaDriverCRD", []string{"enabled"}},
}

// shared are the keys of an operand's group that others read too.
var shared = map[string][]string{"driver": {"rdma", "nvidiaDriverCRD"}}

// A part is a group of settings of which something is made under conditions alone.
type part struct {
	group  string
	when   []chart.Condition // the group's own switch first
	except []string
	// host is the group of the pod that its container is in; empty for a pod of its own.
	host string
}

// parts are the groups that have a switch, or of which nothing is made any more.
func (in *installation) parts() []part {
	var out []part
	add := func(group string, when []chart.Condition, host string) {
		own := chart.Condition(group + ".enabled")
		if (slices.Contains(when, own) || slices.Contains(when, chart.Never)) && !slices.ContainsFunc(out, func(p part) bool { return p.group == group }) {
			when = slices.DeleteFunc(slices.Clone(when), func(c chart.Condition) bool { return c == own })
			out = append(out, part{group, append([]chart.Condition{own}, when...), shared[group], host})
		}
	}
	for _, o := range in.Table.Operands(in.Version) {
		add(o.Settings, o.When, "")
		for _, c := range o.Containers {
			add(c.Image, slices.Concat(o.When, c.When), o.Settings)
		}
	}
	for _, sw := range switches {
		out = append(out, part{group: sw.group, when: []chart.Condition{chart.Condition(sw.key)}, except: sw.except})
	}
	return out
}

// off is the first condition that does not hold, and its opposite; both are empty where all hold or one is not known.
func (in *installation) off(when []chart.Condition) (is, wanted string) {
	for _, c := range when {
		key, want, compares := strings.Cut(string(c), "=")
		value, known := in.Value(key)
		k, has := in.Table.Key(strings.Split(key, "."))
		switch text := model.ScalarText(value); {
		case c == chart.Never:
			return fmt.Sprintf("the operator of %s makes nothing of it", in.Version), ""
		case !has || !k.In(in.Version) || !known || want == "*":
		case compares && text != want, !compares && text == "false":
			if is = key + "=" + text; in.Explicit(key) == nil {
				is += ", which is the default"
			}
			return is, key + "=" + cmp.Or(want, "true")
		}
	}
	return "", ""
}

// dead reports settings that a switch turns off. A file may repeat defaults: copies of values.yaml are full of them.
func (in *installation) dead() {
	reported := map[*model.Setting]bool{}
	for _, p := range in.parts() {
		groupIs, groupWanted := in.off(p.when)
		ownIs, ownWanted := in.off(p.when[1:])
		for _, s := range in.Below(p.group, p.except...) {
			is, wanted := groupIs, groupWanted
			own := s.Name() == p.group+".enabled"
			if own {
				is, wanted = ownIs, ownWanted
			}
			if is == "" || own && s.Text() != "true" || reported[s] || !in.mayBeDead(s) {
				continue
			}
			reported[s] = true
			fix := "set " + wanted
			switch {
			case wanted == "":
				s.Edit.Drop, fix = true, "delete it"
			case own && p.host != "":
				s.Edit.Drop, is, fix = true, "its container runs in the "+p.host+"'s pod, and "+is, "load the module on the host, or "+fix
			case !own:
				s.Edit.Drop, fix = true, "delete it, or "+fix
			}
			in.add("dead-setting", report.Warning, "has no effect: "+is, fix, sourceOperator, s)
		}
	}
}

// mayBeDead leaves out what is reported already, what is not known, and the defaults that a file repeats.
func (in *installation) mayBeDead(s *model.Setting) bool {
	if s.Edit.Drop || s.Unknown || s.Edit.Rename != nil || !in.flags && in.repeatsDefault(s) {
		return false
	}
	return in.Verdict(s).Status != chart.Unknown
}

// repeatsDefault reports whether the setting says what the chart says anyway.
func (in *installation) repeatsDefault(s *model.Setting) bool {
	value, known := in.Table.Default(in.Version, s.Name())
	if last := s.Path[len(s.Path)-1]; last == "version" && in.releasedWithChart(s.Path[0]) && s.Text() == in.Table.AppVersion(in.Version) {
		return true
	}
	if _, isList := s.Value.([]any); in.resource && isList {
		return true // what the chart writes there by itself
	}
	if !known {
		return false
	}
	switch value := value.(type) {
	case []any:
		list, isList := s.Value.([]any)
		return isList && fmt.Sprint(list) == fmt.Sprint(value)
	case map[string]any:
		m, isMap := s.Value.(map[string]any)
		return isMap && len(m) == len(value)
	default:
		return model.ScalarText(value) == s.Text()
	}
}
