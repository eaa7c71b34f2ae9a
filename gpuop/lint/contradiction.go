package lint

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// contradictions reports settings that exclude each other.
func (in *installation) contradictions() {
	for _, rule := range []func(*installation){
		(*installation).precompiledVersion, (*installation).precompiledLeavesOut, (*installation).nriPlugin, (*installation).twoPolicies, (*installation).dynamicDriver,
		(*installation).storageModules, (*installation).hostMofed, (*installation).configs,
	} {
		rule(in)
	}
}

// precompiledVersion looks at the version in force: the chart's own default is no branch.
func (in *installation) precompiledVersion() {
	s := in.explicit("driver.version")
	value, known := in.value("driver.version")
	version := scalarText(value)
	if !known || version == "" || chart.DriverBranch(version) || !in.is("driver.usePrecompiled", true) || s == nil && in.resource {
		return
	}
	major, _, _ := strings.Cut(version, ".")
	fix, reason := "write a branch such as 580", fmt.Sprintf("found %q", version)
	if chart.DriverBranch(major) {
		fix = "write " + major
		switch {
		case s == nil:
			fix = "set driver.version=" + major
		case !s.edit.Drop:
			s.edit.Value = &major
		}
	}
	if s == nil {
		if s = in.on("driver.usePrecompiled"); s == nil {
			return
		}
		reason = "driver.version is the chart's own " + version
	}
	in.add("precompiled-version", report.Failed,
		fmt.Sprintf("driver.usePrecompiled=true wants a driver branch, %s; precompiled images are tagged <branch>-<kernel>-<os>", reason), fix, sourceDocs, s)
}

func (in *installation) precompiledLeavesOut() {
	if in.on("driver.usePrecompiled") == nil {
		return
	}
	for _, other := range []string{"gds.enabled", "gdrcopy.enabled"} {
		if o := in.explicit(other); o != nil && o.text() == "true" {
			in.add("excludes", report.Failed, other+"=true does not work with driver.usePrecompiled=true: precompiled driver images leave out GDS, GDRCopy and vGPU", "choose one", sourceDocs, o)
		}
	}
}

func (in *installation) nriPlugin() {
	if !in.is("cdi.nriPluginEnabled", true) {
		return
	}
	s := in.explicit("cdi.nriPluginEnabled")
	if in.is("cdi.enabled", false) {
		in.add("excludes", report.Failed, "the chart refuses to render: cdi.nriPluginEnabled=true needs cdi.enabled=true", "set cdi.enabled=true", sourceTemplates, some(s, in.explicit("cdi.enabled"))...)
	} else if in.is("toolkit.enabled", false) {
		in.add("excludes", report.Failed, "cdi.nriPluginEnabled=true needs toolkit.enabled=true: the toolkit is the plugin", "set toolkit.enabled=true", sourceTemplates, some(s, in.explicit("toolkit.enabled"))...)
	}
}

func (in *installation) twoPolicies() {
	if in.is("gpuCluster.deployCR", true) && in.is("clusterPolicy.deployCR", true) {
		in.add("excludes", report.Failed, "the chart refuses to render: gpuCluster.deployCR and clusterPolicy.deployCR exclude each other", "set clusterPolicy.deployCR=false", sourceTemplates, some(in.explicit("gpuCluster.deployCR"), in.explicit("clusterPolicy.deployCR"))...)
	}
}

// dynamicDriver is the rule of templates/validations.yaml for the stack of Dynamic Resource Allocation.
func (in *installation) dynamicDriver() {
	if in.is("gpuCluster.deployCR", true) && in.is("driver.enabled", true) && in.is("driver.nvidiaDriverCRD.enabled", false) {
		in.add("excludes", report.Failed, "the chart refuses to render: gpuCluster.deployCR takes its driver from an NVIDIADriver alone", "set driver.nvidiaDriverCRD.enabled=true, or driver.enabled=false", sourceTemplates,
			some(in.explicit("gpuCluster.deployCR"), in.explicit("driver.nvidiaDriverCRD.enabled"))...)
	}
}

func (in *installation) storageModules() {
	if in.on("gds.enabled") == nil {
		return
	}
	if module := in.explicit("driver.kernelModuleType"); module != nil && module.text() == "proprietary" {
		in.add("excludes", report.Failed, "GDS from 2.17.5 on needs the open kernel modules, and driver.kernelModuleType=proprietary", "set driver.kernelModuleType=open", sourceDocs, module)
	}
}

func (in *installation) hostMofed() {
	if s := in.explicit("driver.rdma.useHostMofed"); s != nil && s.text() == "true" && in.is("driver.rdma.enabled", false) {
		in.add("dead-setting", report.Warning, "has no effect: driver.rdma.enabled=false", "set driver.rdma.enabled=true", sourceOperator, s)
	}
}
