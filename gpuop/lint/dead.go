package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

// switches are the groups that do nothing while a key is false, but for the names that still count.
var switches = []struct {
	key, group string
	except     []string
}{
	{"driver.enabled", "driver", []string{"enabled", "rdma", "nvidiaDriverCRD"}},
	{"toolkit.enabled", "toolkit", []string{"enabled"}},
	{"devicePlugin.enabled", "devicePlugin", []string{"enabled"}},
	{"dcgm.enabled", "dcgm", []string{"enabled"}},
	{"dcgmExporter.enabled", "dcgmExporter", []string{"enabled"}},
	{"gfd.enabled", "gfd", []string{"enabled"}},
	{"migManager.enabled", "migManager", []string{"enabled"}},
	{"nodeStatusExporter.enabled", "nodeStatusExporter", []string{"enabled"}},
	{"gds.enabled", "gds", []string{"enabled"}},
	{"gdrcopy.enabled", "gdrcopy", []string{"enabled"}},
	{"vgpuManager.enabled", "vgpuManager", []string{"enabled"}},
	{"vgpuDeviceManager.enabled", "vgpuDeviceManager", []string{"enabled"}},
	{"vfioManager.enabled", "vfioManager", []string{"enabled"}},
	{"sandboxDevicePlugin.enabled", "sandboxDevicePlugin", []string{"enabled"}},
	{"kataSandboxDevicePlugin.enabled", "kataSandboxDevicePlugin", []string{"enabled"}},
	{"ccManager.enabled", "ccManager", []string{"enabled"}},
	{"nfd.enabled", "node-feature-discovery", nil},
	{"dcgmExporter.serviceMonitor.enabled", "dcgmExporter.serviceMonitor", []string{"enabled"}},
	{"sandboxWorkloads.enabled", "vgpuManager", []string{"enabled"}},
	{"sandboxWorkloads.enabled", "vgpuDeviceManager", []string{"enabled"}},
	{"sandboxWorkloads.enabled", "vfioManager", []string{"enabled"}},
	{"sandboxWorkloads.enabled", "sandboxDevicePlugin", []string{"enabled"}},
	{"sandboxWorkloads.enabled", "kataSandboxDevicePlugin", []string{"enabled"}},
	{"sandboxWorkloads.enabled", "sandboxWorkloads", []string{"enabled"}},
	{"gpuCluster.deployCR", "draDriver", nil},
	{"driver.upgradePolicy.autoUpgrade", "driver.upgradePolicy", []string{"autoUpgrade"}},
	{"driver.nvidiaDriverCRD.enabled", "driver.nvidiaDriverCRD", []string{"enabled"}},
}

// dead reports settings that do nothing because a switch is off. In a file a setting that repeats
// the default is left alone: values files that are a copy of the chart's are full of them.
func (in *installation) dead() {
	reported := map[*setting]bool{}
	for _, sw := range switches {
		if k, known := in.table.Key(strings.Split(sw.key, ".")); !known || !k.In(in.version) || !in.is(sw.key, false) {
			continue
		}
		reason := "has no effect: " + sw.key + "=false"
		if in.explicit(sw.key) == nil {
			reason += ", which is the default"
		}
		for _, s := range in.below(sw.group, sw.except...) {
			if reported[s] || !in.mayBeDead(s) {
				continue
			}
			reported[s] = true
			s.dropped = true
			in.add("dead-setting", finding.Warning, reason, "delete it, or set "+sw.key+"=true", sourceOperator, s)
		}
	}
	in.deadModules()
	if s := in.explicit("vgpuManager.enabled"); s != nil && s.text() == "true" && in.is("sandboxWorkloads.enabled", false) && (in.flags || !in.repeatsDefault(s)) {
		in.add("dead-setting", finding.Warning, "has no effect: sandboxWorkloads.enabled=false", "set sandboxWorkloads.enabled=true", sourceOperator, s)
	}
}

// mayBeDead leaves out what is reported already, what is not known, and in a file what the chart
// says too.
func (in *installation) mayBeDead(s *setting) bool {
	if s.dropped || s.unknown || s.renamed != nil || !in.flags && in.repeatsDefault(s) {
		return false
	}
	return in.table.Judge(in.version, s.Path).Status != chart.Unknown
}

// deadModules reports kernel modules whose containers run in the pod of a driver that is not there.
func (in *installation) deadModules() {
	for _, operand := range []string{"gds", "gdrcopy"} {
		if s := in.explicit(operand + ".enabled"); s != nil && s.text() == "true" && in.is("driver.enabled", false) {
			s.dropped = true
			in.add("dead-setting", finding.Warning, "has no effect: its container runs in the driver's pod, and driver.enabled=false",
				"load the module on the host, or set driver.enabled=true", sourceOperator, s)
		}
	}
}

// repeatsDefault reports whether the setting says what the chart says anyway.
func (in *installation) repeatsDefault(s *setting) bool {
	value, known := in.table.Default(in.version, s.name())
	if last := s.Path[len(s.Path)-1]; last == "version" && slices.Contains(releasedWithChart, s.Path[0]) && s.text() == in.table.AppVersion(in.version) {
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
		return scalarText(value) == s.text()
	}
}
