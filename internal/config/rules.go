package config

import (
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// shortInterval is the shortest interval without a warning: -c 30 is often meant in seconds.
const shortInterval = 50 * time.Millisecond

// rules resolves settings that contradict each other: the documented winner wins, with a warning.
func (p *parser) rules() {
	c := p.config
	c.Metrics.FileNamed = p.layerOf("collectors") > layerDefault
	c.Source.Named = p.layerOf("source") > layerDefault

	if !c.Source.Remote.IsEmbedded() && (c.Source.Kind == SourceSim || c.Source.Kind == SourceNVML) {
		p.warn("%s has no effect with --source=%s, which needs no host engine.", p.label("remote-hostengine-info"), c.Source.Kind)
		c.Source.Remote = gpu.EngineAddress{}
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
		p.warn("%s is %v: each collection costs CPU here and in the driver; a number without a unit counts in milliseconds, 30 seconds are 30s.", p.label("collect-interval"), i)
	}
	p.outranked("collectors", c.Metrics.ConfigMap != (ConfigMapName{}), "configmap-data")
	p.outranked("address", c.Web.SystemdSocket, "web-systemd-socket")
	p.outranked("hostname-label", c.Labels.NoHostname, "no-hostname")
}

// strict applies --compatibility=strict to settings without a value of their own.
func (p *parser) strict() {
	c := p.config
	if c.Metrics.Compatibility != CompatibilityStrict {
		return
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
		c.Labels.Hostname = gpu.HostnameBoth // the reference's own spelling changed from 4.8.2 to 4.8.3
	}
	if p.layerOf("owner-labels") == layerDefault && c.HPC.Dir != "" {
		c.Labels.Owners = OwnersOnCopies
	}
}

// ownerLabels keeps --owner-labels=info from a page on which nothing would name an owner, or a device series must.
func (p *parser) ownerLabels() {
	c := p.config
	if c.Labels.Owners != OwnersOnInfo {
		return
	}
	if c.Metrics.Compatibility == CompatibilityStrict {
		p.errs = append(p.errs, fmt.Errorf("%s %q: not with %s=%s, whose series carry their owner; expected series or copies",
			p.label("owner-labels"), OwnersOnInfo, p.label("compatibility"), CompatibilityStrict))
		return
	}
	if !c.Metrics.Accounting {
		p.warn("%s=%s has no effect without --enable-accounting-metrics.", p.label("owner-labels"), OwnersOnInfo)
		c.Labels.Owners = OwnersOnSeries
		return
	}
	p.outranked("kubernetes-virtual-gpus", c.Kubernetes.VirtualGPUs, "owner-labels")
	c.Kubernetes.VirtualGPUs = false
}

// outranked warns of a setting beside one that overrides it.
func (p *parser) outranked(name string, inForce bool, winner string) {
	if inForce && p.layerOf(name) > layerDefault {
		p.warn("%s has no effect beside %s.", p.label(name), p.label(winner))
	}
}

func (p *parser) layerOf(name string) layer { return p.origins[name].layer }

// label says where the setting was given, or how it could be.
func (p *parser) label(name string) string {
	if o, ok := p.origins[name]; ok {
		return o.label
	}
	return "--" + name
}

// isOn reports whether a switch is on, or another setting is not empty.
func (p *parser) isOn(name string) bool {
	v := p.lookup(name).bind(p.config)
	return v.text() != "" && (!v.isBool || v.text() == "true")
}

// notices lists the given settings without effect.
func (p *parser) notices() {
	c := p.config
	c.Notices = p.warnings
	note := func(format string, args ...any) { c.Notices = append(c.Notices, fmt.Sprintf(format, args...)) }
	for i := range p.options {
		o := &p.options[i]
		if o.isDefault(c) {
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
		note("%s has no effect beside --kubernetes.", p.label("container-labels"))
	}
	if c.Source.Sim.Fallback && c.Source.Kind != SourceAuto {
		note("%s has no effect with --source=%s.", p.label("sim-fallback"), c.Source.Kind)
	}
}

// missing returns the switch that is off and that the option needs, directly or by another switch; ""
// if there is none.
func (p *parser) missing(o *option) string {
	for o.needs != "" {
		if !p.isOn(o.needs) {
			return o.needs
		}
		o = p.lookup(o.needs)
	}
	return ""
}

// isDefault reports whether the setting has its default in c.
func (o *option) isDefault(c *Config) bool {
	v := o.bind(&Config{})
	if o.def != "" && v.set(o.def) != nil {
		return false
	}
	return v.text() == o.bind(c).text()
}
