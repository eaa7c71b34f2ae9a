package lint

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// exclusions are settings that do not go together. The conditions of when are path=value, or a path that has any; the
// finding is about the settings of at that the user gives.
var exclusions = []struct {
	severity                      report.State
	when, at, reason, fix, source string
}{
	{report.Failed, "driver.usePrecompiled=true gds.enabled=true", "gds.enabled", leavesOut, "choose one", sourceDocs},
	{report.Failed, "driver.usePrecompiled=true gdrcopy.enabled=true", "gdrcopy.enabled", leavesOut, "choose one", sourceDocs},
	{report.Failed, "cdi.nriPluginEnabled=true cdi.enabled=false", "cdi.nriPluginEnabled cdi.enabled",
		"the chart refuses to render: the NRI plugin needs CDI", "set cdi.enabled=true", sourceTemplates},
	{report.Failed, "cdi.nriPluginEnabled=true cdi.enabled=true toolkit.enabled=false",
		"cdi.nriPluginEnabled toolkit.enabled",
		"cdi.nriPluginEnabled=true needs the toolkit, which is the plugin", "set toolkit.enabled=true", sourceTemplates},
	{report.Failed, "gpuCluster.deployCR=true clusterPolicy.deployCR=true", "gpuCluster.deployCR clusterPolicy.deployCR",
		"the chart refuses to render: GPUCluster and ClusterPolicy exclude each other", "set clusterPolicy.deployCR=false",
		sourceTemplates},
	{report.Failed, "gpuCluster.deployCR=true driver.enabled=true driver.nvidiaDriverCRD.enabled=false",
		"gpuCluster.deployCR driver.nvidiaDriverCRD.enabled",
		"the chart refuses to render: gpuCluster.deployCR takes its driver from an NVIDIADriver alone",
		"set driver.nvidiaDriverCRD.enabled=true, or driver.enabled=false", sourceTemplates},
	{report.Failed, "gds.enabled=true driver.kernelModuleType=proprietary", "driver.kernelModuleType",
		"GDS from 2.17.5 on needs the open kernel modules", "set driver.kernelModuleType=open", sourceDocs},
	{report.Warning, "driver.licensingConfig.configMapName driver.licensingConfig.secretName",
		"driver.licensingConfig.configMapName",
		"driver.licensingConfig names both a ConfigMap and a Secret", "keep the Secret", sourceTemplates},
}

const leavesOut = "precompiled driver images leave out GDS, GDRCopy and vGPU"

// contradictions reports settings that exclude each other.
func (in *installation) contradictions() {
	in.precompiledVersion()
	for _, e := range exclusions {
		holds := true
		for condition := range strings.FieldsSeq(e.when) {
			path, want, compares := strings.Cut(condition, "=")
			value, known := in.Value(path)
			text := model.ScalarText(value)
			s := in.Explicit(path)
			holds = holds && known && (s == nil || !s.Edit.Drop) && (compares && text == want || !compares && text != "")
		}
		var given []*model.Setting
		for path := range strings.FieldsSeq(e.at) {
			if s := in.Explicit(path); s != nil {
				given = append(given, s)
			}
		}
		if holds && len(given) > 0 {
			in.add("excludes", e.severity, e.reason, e.fix, e.source, given...)
		}
	}
	in.configs()
}

// precompiledVersion looks at the version in force: the chart's own default is no branch.
func (in *installation) precompiledVersion() {
	s := in.Explicit("driver.version")
	value, known := in.Value("driver.version")
	version := model.ScalarText(value)
	if !known || version == "" || chart.DriverBranch(version) || !in.Is("driver.usePrecompiled", true) || s == nil && in.resource {
		return
	}
	major, _, _ := strings.Cut(version, ".")
	fix, reason := "write a branch such as 580", fmt.Sprintf("found %q", version)
	if chart.DriverBranch(major) {
		fix = "write " + major
		switch {
		case s == nil:
			fix = "set driver.version=" + major
		case !s.Edit.Drop:
			s.Edit.Value = &major
		}
	}
	if s == nil {
		if s = in.Explicit("driver.usePrecompiled"); s == nil || s.Edit.Drop {
			return
		}
		reason = "driver.version is the chart's own " + version
	}
	in.add("precompiled-version", report.Failed,
		fmt.Sprintf("driver.usePrecompiled=true wants a driver branch, %s; precompiled images are tagged <branch>-<kernel>-<os>", reason), fix, sourceDocs, s)
}
