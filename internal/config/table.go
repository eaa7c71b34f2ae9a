package config

import (
	"cmp"
	_ "embed"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A Setting is one setting: a flag, its environment variables and its key in the YAML file. settings.yaml describes the
// exported fields.
type Setting struct {
	Section   string   `yaml:"-"`     // of the help
	Names     []string `yaml:"flags"` // without dashes; none if there is only a variable
	Variables []string
	Key       string
	Default   string // as a user would write it
	Form      string
	Help      string
	Unused    string
	Needs     string
	PerNode   bool `yaml:"perNode"`
	value     `yaml:"-"`

	// What Parse finds.
	layer layer
	label string // where the setting was given: "--devices", "NODE_NAME", "a.yaml:3: metrics.file"
	given string // the value as it was given
	err   error  // error of value.set, if it rejected given
}

//go:embed settings.yaml
var settingsFile []byte

// declared returns the settings of settings.yaml, without values.
var declared = sync.OnceValue(func() (all []Setting) {
	var file struct {
		Sections []struct {
			Name     string
			Settings []Setting
		}
	}
	_, _ = text.DecodeYAML("settings.yaml", settingsFile, &file) // tests ensure that the file is valid
	for _, section := range file.Sections {
		for _, s := range section.Settings {
			s.Section = section.Name
			if s.Variables == nil {
				s.Variables = []string{"DCGM_EXPORTER_" + strings.ToUpper(strings.ReplaceAll(s.Names[0], "-", "_"))}
			}
			all = append(all, s)
		}
	}
	return all
})

// table returns all settings in the order of the help, with the values of c.
func table(c *Config) []Setting {
	all, values := slices.Clone(declared()), collectionValues(c)
	maps.Copy(values, servingValues(c))
	for i := range all {
		s := &all[i]
		s.value = values[s.ID()]
		s.Default, s.form = cmp.Or(s.Default, s.initial), cmp.Or(s.form, s.Form)
	}
	return all
}

const notCounted = "nothing is counted" // what 0 means

// collectionValues returns the values of what is collected, by the ID of their setting.
func collectionValues(c *Config) map[string]value {
	return map[string]value{
		"collectors":                     filePath(&c.Metrics.File),
		"config-file":                    freeText(&c.Path),
		"configmap-data":                 configMap(&c.Metrics.ConfigMap),
		"vocabulary":                     word(&c.Metrics.Vocabulary, catalog.Classic, catalog.Current, catalog.Both),
		"compatibility":                  word(&c.Metrics.Compatibility, CompatibilityOff, CompatibilityStrict),
		"enable-health-metrics":          boolean(&c.Metrics.Health),
		"enable-accounting-metrics":      boolean(&c.Metrics.Accounting),
		"health-ignore":                  list(&c.Metrics.IgnoredHealth, parseFinding),
		"collect-interval":               duration(&c.Collection.Interval, time.Millisecond, ""),
		"collect-hang-limit":             duration(&c.Collection.HangLimit, 0, ""),
		"xid-count-window-size":          duration(&c.Collection.XIDWindow, time.Millisecond, notCounted),
		"clock-events-count-window-size": duration(&c.Collection.ClockEventWindow, time.Millisecond, notCounted),
		"xid-kernel-log":                 freeText(&c.Collection.KernelLog),

		"source":                        word(&c.Source.Kind, SourceAuto, SourceDCGM, SourceNVML, SourceSim),
		"remote-hostengine-info":        engine(&c.Source.Remote),
		"fallback":                      word(&c.Source.Fallback, FallbackAuto, FallbackNVML, FallbackNone),
		"devices":                       selector(&c.Devices.GPUs),
		"switch-devices":                selector(&c.Devices.Switches),
		"cpu-devices":                   selector(&c.Devices.CPUs),
		"fake-gpus":                     boolean(&c.Ignored.FakeGPUs),
		"enable-gpu-bind-unbind-watch":  boolean(&c.Ignored.WatchBinding),
		"gpu-bind-unbind-poll-interval": duration(&c.Ignored.BindingInterval, 0, ""),
		"watch-max-keep-age":            duration(&c.Ignored.KeepAge, 0, "no limit"),
		"watch-max-keep-samples":        number(&c.Ignored.KeepSamples, 0),
		"health-require-gpus":           boolean(&c.Ignored.RequireGPUs),
		"enable-dcgm-log":               boolean(&c.Source.DCGMLog),
		"dcgm-log-level":                logLevel(&c.Source.DCGMLogLevel),
		"sim-fallback":                  boolean(&c.Source.Sim.Fallback),
		"sim-node":                      freeText(&c.Source.Sim.Node),
		"sim-seed":                      seed(&c.Source.Sim.Seed),
		"sim-scenario":                  freeText(&c.Source.Sim.Scenario),
	}
}

// servingValues returns the values of how it is labeled and served, by the ID of their setting.
func servingValues(c *Config) map[string]value {
	return map[string]value{
		"hostname-label":               word(&c.Labels.Hostname, HostLabelLower, HostLabelUpper, HostLabelBoth),
		"owner-labels":                 word(&c.Labels.Owners, OwnersOnSeries, OwnersOnCopies, OwnersOnInfo),
		"no-hostname":                  boolean(&c.Labels.NoHostname),
		"NODE_NAME":                    freeText(&c.Labels.NodeName),
		"use-old-namespace":            boolean(&c.Labels.OldNamespace),
		"replace-blanks-in-model-name": boolean(&c.Labels.ReplaceBlanks),

		"kubernetes":                           boolean(&c.Kubernetes.Enabled),
		"kubernetes-enable-pod-labels":         boolean(&c.Kubernetes.PodLabels),
		"kubernetes-enable-pod-uid":            boolean(&c.Kubernetes.PodUID),
		"kubernetes-gpu-id-type":               word(&c.Ignored.GPUIDType, "uid", "device-name"),
		"kubernetes-pod-label-allowlist-regex": list(&c.Kubernetes.PodLabelAllowed, parseRegexp),
		"kubernetes-pod-label-limit":           number(&c.Kubernetes.MaxPodLabels, 1),
		"kubernetes-pod-log-directory":         freeText(&c.Kubernetes.PodLogs),
		"kubernetes-virtual-gpus":              boolean(&c.Kubernetes.VirtualGPUs),
		"kubernetes-enable-dra":                boolean(&c.Kubernetes.DRA),
		"nvidia-resource-names":                list(&c.Kubernetes.ResourceNames, anyText),
		"pod-resources-kubelet-socket":         filePath(&c.Kubernetes.Socket),
		"KUBECONFIG":                           freeText(&c.Kubernetes.Kubeconfig),
		"hpc-job-mapping-dir":                  freeText(&c.HPC.Dir),
		"container-labels":                     boolean(&c.Containers.Enabled),
		"container-runtime-socket":             freeText(&c.Containers.Socket),
		"container-label-allowlist-regex":      list(&c.Containers.LabelAllowed, parseRegexp),

		"address":                  listen(&c.Web.Address),
		"web-systemd-socket":       boolean(&c.Web.SystemdSocket),
		"web-config-file":          freeText(&c.Web.ConfigFile),
		"web-read-timeout":         duration(&c.Web.ReadTimeout, 0, "no limit"),
		"web-write-timeout":        duration(&c.Web.WriteTimeout, 0, "no limit"),
		"web-max-requests":         number(&c.Web.MaxRequests, 0),
		"max-series":               number(&c.Metrics.MaxSeries, 0),
		"web-enable-lifecycle":     boolean(&c.Web.Lifecycle),
		"enable-pprof":             boolean(&c.Web.Pprof),
		"web-landing-page":         boolean(&c.Web.LandingPage),
		"enable-exporter-metrics":  boolean(&c.Web.ExporterMetrics),
		"log-format":               word(&c.Log.Format, LogText, LogJSON),
		"debug":                    boolean(&c.Log.Debug),
		"disable-startup-validate": boolean(&c.Ignored.StartupValidate),
		"dump-enabled":             boolean(&c.Dump.Enabled),
		"dump-directory":           filePath(&c.Dump.Directory),
		"dump-retention":           duration(&c.Dump.Retention, time.Hour, "forever"),
		"dump-compression":         boolean(&c.Dump.Compress),
	}
}
