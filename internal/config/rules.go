package config

import (
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
)

// shortInterval is the shortest interval without a warning. Users who write -c 30 often mean seconds.
const shortInterval = 50 * time.Millisecond

// resolveConflicts applies the documented precedence to settings that contradict each other, with a warning.
func (p *parser) resolveConflicts() {
	c := p.config
	c.Metrics.FileNamed = p.layerOf("collectors") > layerDefault
	c.Source.Named = p.layerOf("source") > layerDefault

	if !c.Source.Remote.IsEmbedded() && (c.Source.Kind == SourceSim || c.Source.Kind == SourceNVML) {
		p.warn("%s has no effect with --source=%s, which needs no host engine.",
			p.label("remote-hostengine-info"), c.Source.Kind)
		c.Source.Remote = hostengine.Address{}
	}
	if c.Source.Kind != SourceSim && !c.Source.Sim.Fallback {
		for _, name := range []string{"sim-node", "sim-seed", "sim-scenario"} {
			if p.layerOf(name) > layerDefault {
				p.warn("%s has no effect with --source=%s: it needs --source=sim.", p.label(name), c.Source.Kind)
			}
		}
	}
	p.strict()
	p.ownerLabels()
	if i := c.Collection.Interval; i < shortInterval {
		p.warn("%s is %v, which costs CPU in the exporter and in the driver. "+
			"A number without a unit is milliseconds: for 30 seconds, write 30s.", p.label("collect-interval"), i)
	}
	p.overridden("collectors", c.Metrics.ConfigMap != (ConfigMapName{}), "configmap-data")
	p.overridden("address", c.Web.SystemdSocket, "web-systemd-socket")
	p.overridden("hostname-label", c.Labels.NoHostname, "no-hostname")
}

// strict applies --compatibility=strict to settings that were not given.
func (p *parser) strict() {
	c := p.config
	if c.Metrics.Compatibility != CompatibilityStrict {
		return
	}
	if p.layerOf("health-ignore") > layerDefault {
		p.warn("%s has no effect with --compatibility=%s.", p.label("health-ignore"), CompatibilityStrict)
	}
	for name, on := range map[string]*bool{
		"enable-health-metrics": &c.Metrics.Health, "enable-accounting-metrics": &c.Metrics.Accounting,
		"enable-exporter-metrics": &c.Web.ExporterMetrics,
	} {
		if p.layerOf(name) == layerDefault {
			*on = false
		}
	}
	if p.layerOf("hostname-label") == layerDefault {
		c.Labels.Hostname = HostLabelBoth // NVIDIA's spelling changed from 4.8.2 to 4.8.3
	}
	if p.layerOf("owner-labels") == layerDefault && c.HPC.Dir != "" {
		c.Labels.Owners = OwnersOnCopies
	}
}

// ownerLabels rejects --owner-labels=info under strict, and disables it without accounting metrics, since no series
// would then name an owner.
func (p *parser) ownerLabels() {
	c := p.config
	if c.Labels.Owners != OwnersOnInfo {
		return
	}
	if c.Metrics.Compatibility == CompatibilityStrict {
		p.errs = append(p.errs, fmt.Errorf("%s %q cannot be combined with %s=%s: expected series or copies",
			p.label("owner-labels"), OwnersOnInfo, p.label("compatibility"), CompatibilityStrict))
		return
	}
	if !c.Metrics.Accounting {
		p.warn("%s=%s has no effect without --enable-accounting-metrics.", p.label("owner-labels"), OwnersOnInfo)
		c.Labels.Owners = OwnersOnSeries
		return
	}
	p.overridden("kubernetes-virtual-gpus", c.Kubernetes.VirtualGPUs, "owner-labels")
	c.Kubernetes.VirtualGPUs = false
}

// overridden warns if a setting was given that another active setting overrides.
func (p *parser) overridden(name string, active bool, by string) {
	if active && p.layerOf(name) > layerDefault {
		p.warn("%s has no effect together with %s.", p.label(name), p.label(by))
	}
}

func (p *parser) layerOf(name string) layer { return p.origins[name].layer }

// label returns where the setting was given, or its flag if it was not.
func (p *parser) label(name string) string {
	if o, ok := p.origins[name]; ok {
		return o.label
	}
	return "--" + name
}

// isOn reports whether a switch is on, or another setting is not empty.
func (p *parser) isOn(name string) bool {
	o := p.lookup(name)
	return o.text() != "" && (!o.isBool || o.text() == "true")
}

// notices adds a notice for each setting that was given and has no effect.
func (p *parser) notices() {
	c := p.config
	c.Notices = p.warnings
	note := func(format string, args ...any) { c.Notices = append(c.Notices, fmt.Sprintf(format, args...)) }
	defaults := table(&Config{})
	for i := range p.options {
		o, initial := &p.options[i], &defaults[i]
		if (o.def == "" || initial.set(o.def) == nil) && o.text() == initial.text() {
			continue
		}
		label := p.label(o.id())
		off := p.missing(o)
		switch {
		case off != "":
			note("%s has no effect without --%s.", label, off)
		case o.unused != "":
			note("%s has no effect: %s.", label, o.unused)
		}
	}
	if c.Containers.Enabled && c.Kubernetes.Enabled {
		note("%s has no effect together with --kubernetes.", p.label("container-labels"))
	}
	if c.Source.Sim.Fallback && c.Source.Kind != SourceAuto {
		note("%s has no effect with --source=%s.", p.label("sim-fallback"), c.Source.Kind)
	}
}

// missing returns the first switch that is off and that the option needs, directly or indirectly. It returns "" if
// there is none.
func (p *parser) missing(o *option) string {
	for o.needs != "" {
		if !p.isOn(o.needs) {
			return o.needs
		}
		o = p.lookup(o.needs)
	}
	return ""
}
