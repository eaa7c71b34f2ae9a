package sharing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// Route is how the device plugin was installed, which decides what happens to a node that requests
// no config, and which settings of a config have no effect.
type Route string

const (
	// Operator is NVIDIA's GPU Operator: devicePlugin.config.{name,default,data}.
	Operator Route = "operator"
	// Plugin is the device plugin's own chart, nvdp/nvidia-device-plugin:
	// config.{name,map,default}.
	Plugin Route = "plugin"
)

// ConfigLabel is the node label that names the config a node wants.
const ConfigLabel = "nvidia.com/device-plugin.config"

// Choose says which of the configs a node gets, as the config manager decides it: the label first,
// then the default, then the route's fallbacks. An empty name with ok means that the node runs
// without any config; ok is false where the config manager fails and the plugin does not start.
func Choose(route Route, names []string, label, deflt string) (name string, ok bool, findings []report.Row) {
	add := func(s report.State, subject, reason, fix string) {
		findings = append(findings, report.Row{ID: ruleChoice, State: s, Subject: subject, Reason: reason, Fix: fix, Source: sourceChoice})
	}
	defaultKey := map[Route]string{Operator: "devicePlugin.config.default", Plugin: "config.default"}[route]
	subject, wanted := ConfigLabel, label
	if label == "" {
		subject, wanted = defaultKey, deflt
	}
	switch {
	case slices.Contains(names, wanted) && wanted != "":
		return wanted, true, nil
	case wanted != "":
		fix := "there are: " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
		if near := report.Nearest(wanted, names); near != "" {
			fix = "write " + near
		}
		add(report.Failed, subject, fmt.Sprintf("there is no config %q in the ConfigMap: the config manager exits and the device plugin does not start", wanted), fix)
		return "", false, findings
	case route == Operator:
		add(report.Warning, defaultKey, "no default and no node label: the operator's fallback is an empty config, so nothing will change",
			"set "+defaultKey+", or label the node "+ConfigLabel+"=<name>")
		return "", true, findings
	case slices.Contains(names, "default"):
		add(report.Note, defaultKey, `no default and no node label: the chart falls back to the config named "default"`, "")
		return "default", true, findings
	case len(names) == 1:
		add(report.Note, defaultKey, fmt.Sprintf("no default and no node label: the chart falls back to the only config, %q; the GPU Operator would use none", names[0]), "")
		return names[0], true, findings
	}
	add(report.Failed, defaultKey, fmt.Sprintf("no default, no node label, several configs (%s) and none named \"default\": helm refuses the chart's own ConfigMap, and with another the device plugin does not start", strings.Join(slices.Sorted(slices.Values(names)), ", ")),
		"set "+defaultKey+", or name one config default")
	return "", false, findings
}

// overridden are the flags that the operator's DaemonSet sets as environment variables, which win
// over the file, with the value that wins.
var overridden = map[string]string{
	"flags.migStrategy":               "MIG_STRATEGY from mig.strategy",
	"flags.failOnInitError":           "FAIL_ON_INIT_ERROR=true",
	"flags.mpsRoot":                   "MPS_ROOT from devicePlugin.mps.root",
	"flags.plugin.deviceListStrategy": "DEVICE_LIST_STRATEGY, with CDI (the default since v25.10) cdi-annotations,cdi-cri",
	"flags.plugin.deviceIDStrategy":   "DEVICE_ID_STRATEGY=uuid",
	"flags.plugin.passDeviceSpecs":    "PASS_DEVICE_SPECS=true",
}

// Dead reports the settings of the config that have no effect on the route.
func (c *Config) Dead(route Route) []report.Row {
	if c == nil || route != Operator {
		return nil
	}
	var findings []report.Row
	for _, path := range slices.Sorted(maps.Keys(c.set)) {
		winner, dead := overridden[path]
		if !dead {
			continue
		}
		fix := "set it through devicePlugin.env in the operator's values"
		if path == "flags.migStrategy" {
			fix = "set mig.strategy in the operator's values"
		}
		findings = append(findings, report.Row{
			ID: ruleDead, State: report.Warning, Line: c.set[path], Subject: path,
			Reason: "no effect under the GPU Operator, whose environment wins over the file: " + winner,
			Fix:    fix, Source: sourceEnviron,
		})
	}
	return findings
}

// MIGStrategy is flags.migStrategy, or "" where the config leaves it open.
func (c *Config) MIGStrategy() string {
	if c == nil {
		return ""
	}
	return c.migStrategy
}
