package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/finding"
)

// components are the operands with an image triple (repository, image, version) of their own.
var components = []string{
	"validator", "operator", "operator.initContainer", "driver", "driver.manager", "toolkit", "devicePlugin", "dcgm",
	"dcgmExporter", "gfd", "migManager", "nodeStatusExporter", "gds", "gdrcopy", "vgpuManager", "vgpuManager.driverManager",
	"vgpuDeviceManager", "vfioManager", "vfioManager.driverManager", "kataManager", "sandboxDevicePlugin",
	"kataSandboxDevicePlugin", "ccManager", "draDriver",
}

// releasedWithChart are the operands whose images are built from the operator's own source, with its version.
var releasedWithChart = []string{"validator", "operator", "nodeStatusExporter"}

var (
	imageName      = regexp.MustCompile(`^[a-zA-Z0-9-]+$`)
	repositoryName = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*$`)
	tagName        = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]{0,127}|sha256:[0-9a-f]{64})$`)
)

// images judges the image triples that the user sets: the operator joins them as repository/image:version.
func (in *installation) images() {
	const join = "the operator joins repository/image:version"
	for _, c := range components {
		if s := in.explicit(c + ".repository"); s != nil && !s.unknown && s.text() != "" && !repositoryName.MatchString(s.text()) {
			fix := ""
			trimmed := strings.Trim(strings.TrimPrefix(strings.TrimPrefix(s.text(), "https://"), "http://"), "/ ")
			if repositoryName.MatchString(trimmed) {
				fix, s.changed = "write "+trimmed, &trimmed
			}
			in.add("image", finding.Error, fmt.Sprintf("%q is no registry and path; %s", s.text(), join), fix, sourceOperator, s)
		}
		if s := in.explicit(c + ".image"); s != nil && !s.unknown && s.text() != "" && !imageName.MatchString(s.text()) {
			in.imageName(c, s)
		}
		if s := in.explicit(c + ".version"); s != nil && !s.unknown && s.text() != "" && !tagName.MatchString(s.text()) {
			in.add("image", finding.Error, fmt.Sprintf("%q cannot be an image's tag or sha256 digest", s.text()), "", sourceOperator, s)
		}
	}
}

func (in *installation) imageName(component string, s *setting) {
	repository, image, hasPath := cutLast(s.text(), "/")
	image, tag, hasTag := strings.Cut(image, ":")
	if !hasPath && !hasTag {
		in.add("image", finding.Error, fmt.Sprintf("%q is no image's name", s.text()), "", sourceCRD, s)
		return
	}
	var parts []string
	if hasPath {
		parts = append(parts, component+".repository="+repository)
	}
	parts = append(parts, component+".image="+image)
	if hasTag {
		parts = append(parts, component+".version="+tag)
	}
	if imageName.MatchString(image) {
		s.dropped, s.added = true, parts
	}
	in.add("image", finding.Error, fmt.Sprintf("%q holds more than the image's name; the operator joins repository/image:version, and the API server refuses the rest", s.text()),
		"write "+strings.Join(parts, ", "), sourceCRD, s)
}

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

// dead reports settings that do nothing because a switch is off. In a file a setting that repeats the default is left
// alone: values files that are a copy of the chart's are full of them.
func (in *installation) dead() {
	reported := map[*setting]bool{}
	for _, sw := range switches {
		if k, known := in.table.Key(strings.Split(sw.key, ".")); !known || !k.In(in.version) || !in.is(sw.key, false) {
			continue
		}
		for _, s := range in.below(sw.group, sw.except...) {
			if reported[s] || s.dropped || s.unknown || s.renamed != nil || !in.flags && in.repeatsDefault(s) {
				continue
			}
			reported[s] = true
			s.dropped = true
			reason := "has no effect: " + sw.key + "=false"
			if in.explicit(sw.key) == nil {
				reason += ", which is the default"
			}
			in.add("dead-setting", finding.Warning, reason, "delete it, or set "+sw.key+"=true", sourceOperator, s)
		}
	}
	for _, operand := range []string{"gds", "gdrcopy"} {
		if s := in.explicit(operand + ".enabled"); s != nil && s.text() == "true" && in.is("driver.enabled", false) {
			s.dropped = true
			in.add("dead-setting", finding.Warning, "has no effect: its container runs in the driver's pod, and driver.enabled=false",
				"load the module on the host, or set driver.enabled=true", sourceOperator, s)
		}
	}
	if s := in.explicit("vgpuManager.enabled"); s != nil && s.text() == "true" && in.is("sandboxWorkloads.enabled", false) && (in.flags || !in.repeatsDefault(s)) {
		in.add("dead-setting", finding.Warning, "has no effect: sandboxWorkloads.enabled=false", "set sandboxWorkloads.enabled=true", sourceOperator, s)
	}
}

// repeatsDefault reports whether the setting says what the chart says anyway.
func (in *installation) repeatsDefault(s *setting) bool {
	value, known := in.table.Default(in.version, s.name())
	if last := s.path[len(s.path)-1]; last == "version" && slices.Contains(releasedWithChart, s.path[0]) && s.text() == in.table.AppVersion(in.version) {
		return true
	}
	if _, isList := s.value.([]any); in.resource && isList {
		return true // what the chart writes there without being asked
	}
	if !known {
		return false
	}
	switch value := value.(type) {
	case []any:
		list, isList := s.value.([]any)
		return isList && fmt.Sprint(list) == fmt.Sprint(value)
	case map[string]any:
		m, isMap := s.value.(map[string]any)
		return isMap && len(m) == len(value)
	default:
		return scalarText(value) == s.text()
	}
}

var branch = regexp.MustCompile(`^[0-9]{3}$`)

// contradictions reports settings that exclude each other.
func (in *installation) contradictions() {
	for _, rule := range []func(*installation){
		(*installation).precompiledVersion, (*installation).precompiledLeavesOut, (*installation).nriPlugin, (*installation).twoPolicies,
		(*installation).storageModules, (*installation).hostMofed, (*installation).configs,
	} {
		rule(in)
	}
}

// on returns the setting that switches the path on, or nil where the user does not or where it is dropped.
func (in *installation) on(path string) *setting {
	if s := in.explicit(path); s != nil && s.text() == "true" && !s.dropped {
		return s
	}
	return nil
}

func (in *installation) precompiledVersion() {
	s := in.explicit("driver.version")
	if s == nil || s.unknown || s.text() == "" || branch.MatchString(s.text()) || !in.is("driver.usePrecompiled", true) {
		return
	}
	major, _, _ := strings.Cut(s.text(), ".")
	fix := "write a branch such as 580"
	if branch.MatchString(major) {
		fix = "write " + major
		if !s.dropped {
			s.changed = &major
		}
	}
	in.add("precompiled-version", finding.Error,
		fmt.Sprintf("driver.usePrecompiled=true wants a driver branch, found %q; precompiled images are tagged <branch>-<kernel>-<os>", s.text()), fix, sourceDocs, s)
}

func (in *installation) precompiledLeavesOut() {
	if in.on("driver.usePrecompiled") == nil {
		return
	}
	for _, other := range []string{"gds.enabled", "gdrcopy.enabled"} {
		if o := in.explicit(other); o != nil && o.text() == "true" {
			in.add("excludes", finding.Error, other+"=true does not work with driver.usePrecompiled=true: precompiled driver images leave out GDS, GDRCopy and vGPU", "choose one", sourceDocs, o)
		}
	}
}

func (in *installation) nriPlugin() {
	if !in.is("cdi.nriPluginEnabled", true) {
		return
	}
	s := in.explicit("cdi.nriPluginEnabled")
	if in.is("cdi.enabled", false) {
		in.add("excludes", finding.Error, "the chart refuses to render: cdi.nriPluginEnabled=true needs cdi.enabled=true", "set cdi.enabled=true", sourceTemplates, some(s, in.explicit("cdi.enabled"))...)
	} else if in.is("toolkit.enabled", false) {
		in.add("excludes", finding.Error, "cdi.nriPluginEnabled=true needs toolkit.enabled=true: the toolkit is the plugin", "set toolkit.enabled=true", sourceTemplates, some(s, in.explicit("toolkit.enabled"))...)
	}
}

func (in *installation) twoPolicies() {
	if in.is("gpuCluster.deployCR", true) && in.is("clusterPolicy.deployCR", true) {
		in.add("excludes", finding.Error, "the chart refuses to render: gpuCluster.deployCR and clusterPolicy.deployCR exclude each other", "set clusterPolicy.deployCR=false", sourceTemplates, some(in.explicit("gpuCluster.deployCR"), in.explicit("clusterPolicy.deployCR"))...)
	}
}

func (in *installation) storageModules() {
	if in.on("gds.enabled") == nil {
		return
	}
	if module := in.explicit("driver.kernelModuleType"); module != nil && module.text() == "proprietary" {
		in.add("excludes", finding.Error, "GDS from 2.17.5 on needs the open kernel modules, and driver.kernelModuleType=proprietary", "set driver.kernelModuleType=open", sourceDocs, module)
	}
}

func (in *installation) hostMofed() {
	if s := in.explicit("driver.rdma.useHostMofed"); s != nil && s.text() == "true" && in.is("driver.rdma.enabled", false) {
		in.add("dead-setting", finding.Warning, "has no effect: driver.rdma.enabled=false", "set driver.rdma.enabled=true", sourceOperator, s)
	}
}

// some drops the settings that are nil.
func some(settings ...*setting) []*setting {
	return slices.DeleteFunc(settings, func(s *setting) bool { return s == nil })
}

// configs judges the ConfigMaps that the chart can create or that it names.
func (in *installation) configs() {
	for _, c := range []string{"devicePlugin", "migManager", "dcgmExporter"} {
		create := in.explicit(c + ".config.create")
		if create == nil || create.text() != "true" || create.dropped {
			continue
		}
		if name, _ := in.value(c + ".config.name"); scalarText(name) == "" {
			in.add("config-map", finding.Error, "the chart refuses to render: "+c+".config.create=true needs a "+c+".config.name", "set "+c+".config.name", sourceTemplates, create)
		}
		if len(in.below(c+".config.data")) == 0 && scalarOf(in.explicit(c+".config.data")) == "" {
			in.add("config-map", finding.Error, c+".config.create=true needs "+c+".config.data, or no ConfigMap is made", "set "+c+".config.data", sourceTemplates, create)
		}
	}
	fallback := in.explicit("devicePlugin.config.default")
	in.fallbackConfig(fallback)
	if name := in.explicit("devicePlugin.config.name"); name != nil && name.text() != "" && !name.dropped && (fallback == nil || fallback.text() == "") {
		in.add("config-fallback", finding.Info, "without devicePlugin.config.default a node gets no config until it has the label nvidia.com/device-plugin.config",
			"set devicePlugin.config.default to the config for all nodes", sourceOperator, name)
	}
	if name := in.explicit("driver.licensingConfig.configMapName"); name != nil && name.text() != "" && !name.dropped {
		if secret := in.explicit("driver.licensingConfig.secretName"); secret != nil && secret.text() != "" {
			in.add("excludes", finding.Warning, "driver.licensingConfig names both a ConfigMap and a Secret", "keep the Secret", sourceTemplates, name)
		}
	}
}

// fallbackConfig judges the config for nodes that ask for none.
func (in *installation) fallbackConfig(fallback *setting) {
	data := in.below("devicePlugin.config.data")
	if fallback == nil || fallback.text() == "" || len(data) == 0 {
		return
	}
	var names []string
	for _, s := range data {
		names = append(names, s.path[len(s.path)-1])
	}
	if !slices.Contains(names, fallback.text()) {
		fix := "the configs are " + strings.Join(names, ", ")
		if near := finding.Nearest(fallback.text(), names); near != "" {
			fix, fallback.changed = "write "+near, &near
		}
		in.add("config-map", finding.Error, fmt.Sprintf("no config %q in devicePlugin.config.data; the config-manager of every node exits", fallback.text()), fix, "k8s-device-plugin cmd/config-manager", fallback)
	}
}

func scalarOf(s *setting) string {
	if s == nil {
		return ""
	}
	return s.text()
}

// versions compares the operand versions that the user pins with those that the chart is made for. A pin is taken out
// only when it is the default of another release, left over from there.
func (in *installation) versions() {
	for _, c := range components {
		s := in.explicit(c + ".version")
		if s == nil || s.unknown || s.text() == "" || c == "gfd" && in.gfdImage(s) {
			continue
		}
		if s.dropped || !in.flags && in.repeatsDefault(s) || in.ownImage(c) {
			continue
		}
		if c == "driver" {
			in.driverVersion(s)
			continue
		}
		made, known := in.table.Operand(in.version, c)
		if slices.Contains(releasedWithChart, c) {
			made, known = in.table.AppVersion(in.version), true
		}
		if known && s.text() != made && !sameVersion(s.text(), made) {
			in.pinned(s, made)
		}
	}
}

// pinned reports a version that is not the one the chart is made for.
func (in *installation) pinned(s *setting, made string) {
	relation := "not"
	switch order := compareVersions(s.text(), made); {
	case order > 0:
		relation = "newer than"
	case order < 0:
		relation = "older than"
	}
	reason := fmt.Sprintf("%s is %s %s, which chart %s is made for", s.text(), relation, made, in.version)
	if from, found := in.defaultOf(s); found {
		s.dropped = true
		in.add("operand-version", finding.Warning, fmt.Sprintf("%s: it is the default of %s", reason, from), "delete it: the chart brings the version it was tested with", sourceValues, s)
		return
	}
	in.add("operand-version", finding.Warning, reason, "delete it, unless you need this version: the chart brings the one it was tested with", sourceValues, s)
}

// defaultOf finds the newest other release whose default the setting repeats; where only the version number is given, any
// tag of that version counts.
func (in *installation) defaultOf(s *setting) (from chart.Version, found bool) {
	for _, v := range slices.Backward(in.table.Versions()) {
		tag, known := in.table.Operand(v, strings.Join(s.path[:len(s.path)-1], "."))
		if s.path.String() == "node-feature-discovery.image.tag" {
			tag, known = in.table.Operand(v, "nfd")
		}
		if slices.Contains(releasedWithChart, s.path[0]) && len(s.path) == 2 {
			tag, known = in.table.AppVersion(v), true
		}
		if known && v != in.version && slices.Equal(numbers(tag), numbers(s.text())) {
			return v, true
		}
	}
	return chart.Version{}, false
}

// driverVersion judges a pinned driver. NVIDIA supports several branches with each release, so that a pin is never taken
// out, and is not judged at all where the table does not name the branches.
func (in *installation) driverVersion(s *setting) {
	made, known := in.table.Drivers(in.version)
	if !known || slices.ContainsFunc(made, func(v string) bool { return sameBranch(s.text(), v) }) {
		return
	}
	in.add("driver-version", finding.Warning, fmt.Sprintf("the driver %s is of no branch that NVIDIA names for %s: %s", s.text(), in.version, list(made)),
		"see the driver support matrix; delete it to get "+made[0], sourceMatrix, s)
}

// ownImage reports whether the operand is pulled from a path that is no mirror of upstream's, so that its versions are
// not upstream's either: another exporter, or a driver that the user builds.
func (in *installation) ownImage(component string) bool {
	s := in.explicit(component + ".repository")
	if s == nil {
		return false
	}
	upstream, known := in.table.Default(in.version, component+".repository")
	_, path, hasPath := strings.Cut(scalarText(upstream), "/")
	return known && hasPath && s.text() != path && !strings.HasSuffix(s.text(), "/"+path)
}

// discovery compares a pinned image of Node Feature Discovery with the one that this release, or the last one that the
// table knows of, is made for.
func (in *installation) discovery() {
	s := in.explicit("node-feature-discovery.image.tag")
	if s == nil || s.unknown || s.dropped {
		return
	}
	if made, known := in.table.Operand(in.version, "nfd"); known && s.text() != "" && compareVersions(s.text(), made) < 0 {
		in.pinned(s, made)
	}
}

// oldDefaults reports names that were the chart's default once, and that something else has replaced.
func (in *installation) oldDefaults() {
	for _, s := range in.settings {
		k, known := in.table.Key(s.path)
		if !known || !k.In(in.version) || s.dropped || s.text() == "" {
			continue
		}
		last := s.path[len(s.path)-1]
		current, _ := k.Default(in.version)
		if last != "image" && last != "repository" && s.name() != "migManager.config.name" || scalarText(current) == s.text() {
			continue
		}
		if last == "repository" && in.moved(k, s) {
			continue
		}
		since, found := replacedAt(k, s.text())
		if !found || in.version.Before(since) {
			continue
		}
		s.dropped = true
		severity, reason := finding.Error, fmt.Sprintf("was the chart's default before %s; this release has the image in %s", since, scalarText(current))
		switch {
		case last == "image":
			reason = fmt.Sprintf("was the chart's default before %s; this release has the image as %s", since, scalarText(current))
		case s.name() == "migManager.config.name":
			severity, reason = finding.Warning, fmt.Sprintf("was the chart's default before %s; naming it turns off the configs that the MIG manager makes for each node's GPUs", since)
		}
		in.add("old-default", severity, reason, "delete it", sourceValues, s)
	}
}

// moved reports a mirror of a path at which upstream keeps the image no more, and corrects it.
func (in *installation) moved(k *chart.Key, s *setting) bool {
	current, _ := k.Default(in.version)
	_, now, _ := strings.Cut(scalarText(current), "/")
	for _, d := range k.Defaults() {
		_, before, hasPath := strings.Cut(scalarText(d.Value), "/")
		mirror, isMirror := strings.CutSuffix(s.text(), "/"+before)
		if in.version.Before(d.From) || !d.Known || !hasPath || before == now || !isMirror || scalarText(d.Value) == s.text() || now == "" {
			continue
		}
		right := mirror + "/" + now
		s.changed = &right
		in.add("old-default", finding.Warning, fmt.Sprintf("upstream keeps the image under %s in this release, under %s before; a mirror follows", now, before), "write "+right, sourceValues, s)
		return true
	}
	return false
}

// replacedAt returns the release at which another default took the place of value.
func replacedAt(k *chart.Key, value string) (since chart.Version, found bool) {
	was := false
	for _, d := range k.Defaults() {
		is := d.Known && scalarText(d.Value) == value
		if was && !is && d.Known {
			since, found = d.From, true
		}
		was = is
	}
	return since, found && !was
}

// list names the default driver and the branches.
func list(versions []string) string {
	if len(versions) == 1 {
		return versions[0]
	}
	var branches []string
	for _, v := range versions {
		b, _, _ := strings.Cut(v, ".")
		if !slices.Contains(branches, b) {
			branches = append(branches, b)
		}
	}
	return versions[0] + " (or branch " + alternatives(branches) + ")"
}

// gfdImage reports a version of the old gpu-feature-discovery image, which the chart left with v24.3.0.
func (in *installation) gfdImage(s *setting) bool {
	if compareVersions(s.text(), "0.9.0") >= 0 || s.text() == "" {
		return false
	}
	image, _ := in.value("gfd.image")
	moved := mustVersion(in.table, "v24.3.0")
	const reason = "GPU Feature Discovery is part of the image k8s-device-plugin since v24.3.0"
	if in.version.Before(moved) && !in.flags && in.repeatsDefault(s) {
		return false
	}
	if in.version.Before(moved) {
		in.add("gfd-image", finding.Info, fmt.Sprintf("works with %s, but %s, whose tags are the device plugin's: %s is then a tag that does not exist", in.version, reason, s.text()),
			"delete it when you upgrade", sourceValues, s)
		return false
	}
	if image != "k8s-device-plugin" {
		return false
	}
	s.dropped = true
	in.add("gfd-image", finding.Error, fmt.Sprintf("%s, whose tags are the device plugin's; %s is a version of the old image gpu-feature-discovery and cannot be pulled", reason, s.text()),
		"delete it", sourceValues, s)
	return true
}

// numbers are the leading version numbers of a tag: v0.12.2-ubi8 is 0, 12, 2 and 3.1.7-3.1.4-ubuntu20.04 is 3, 1, 7,
// 3, 1, 4.
func numbers(tag string) []int {
	var out []int
	for part := range strings.SplitSeq(strings.TrimPrefix(tag, "v"), "-") {
		for f := range strings.SplitSeq(part, ".") {
			n, err := strconv.Atoi(f)
			if err != nil {
				return out
			}
			out = append(out, n)
		}
	}
	return out
}

func compareVersions(a, b string) int {
	x, y := numbers(a), numbers(b)
	n := min(len(x), len(y))
	return slices.Compare(x[:n], y[:n])
}

// sameVersion reports whether a tag is of a version: v0.12.2-ubi8 is of 0.12.2.
func sameVersion(tag, version string) bool {
	x, y := numbers(tag), numbers(version)
	return len(x) >= len(y) && slices.Equal(x[:len(y)], y) || len(x) > 0 && len(x) < len(y) && slices.Equal(x, y[:len(x)])
}

func sameBranch(a, b string) bool {
	x, y := numbers(a), numbers(b)
	return len(x) > 0 && len(y) > 0 && x[0] == y[0]
}
