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
	p.Metrics.FileNamed, p.Source.Named = p.isGiven("collectors"), p.isGiven("source")
	kind := p.Source.Kind
	if !p.Source.Remote.IsEmbedded() && (kind == SourceSim || kind == SourceNVML) {
		p.warn("%s has no effect with --source=%s, which needs no host engine.",
			p.label("remote-hostengine-info"), kind)
		p.Source.Remote = hostengine.Address{}
	}
	for _, name := range []string{"sim-node", "sim-seed", "sim-scenario"} {
		if kind != SourceSim && !p.Source.Sim.Fallback && p.isGiven(name) {
			p.warn("%s has no effect with --source=%s: it needs --source=sim.", p.label(name), kind)
		}
	}
	p.strict()
	p.ownerLabels()
	if i := p.Collection.Interval; i < shortInterval {
		p.warn("%s is %v, which costs CPU in the exporter and in the driver. "+
			"A number without a unit is milliseconds: for 30 seconds, write 30s.", p.label("collect-interval"), i)
	}
	p.overridden("collectors", p.Metrics.ConfigMap != (ConfigMapName{}), "configmap-data")
	p.overridden("address", p.Web.SystemdSocket, "web-systemd-socket")
	p.overridden("hostname-label", p.Labels.NoHostname, "no-hostname")
}

// strict applies --compatibility=strict to settings that were not given.
func (p *parser) strict() {
	if p.Metrics.Compatibility != CompatibilityStrict {
		return
	}
	if p.isGiven("health-ignore") {
		p.warn("%s has no effect with --compatibility=%s.", p.label("health-ignore"), CompatibilityStrict)
	}
	for name, on := range map[string]*bool{
		"enable-health-metrics": &p.Metrics.Health, "enable-accounting-metrics": &p.Metrics.Accounting,
		"enable-exporter-metrics": &p.Web.ExporterMetrics,
	} {
		*on = *on && p.isGiven(name)
	}
	if !p.isGiven("hostname-label") {
		p.Labels.Hostname = HostLabelBoth // NVIDIA's spelling changed from 4.8.2 to 4.8.3
	}
	if !p.isGiven("owner-labels") && p.HPC.Dir != "" {
		p.Labels.Owners = OwnersOnCopies
	}
}

// ownerLabels rejects --owner-labels=info under strict, and disables it without accounting metrics, since no series
// would then name an owner.
func (p *parser) ownerLabels() {
	switch {
	case p.Labels.Owners != OwnersOnInfo:
	case p.Metrics.Compatibility == CompatibilityStrict:
		p.errs = append(p.errs, fmt.Errorf("%s %q cannot be combined with %s=%s: expected series or copies",
			p.label("owner-labels"), OwnersOnInfo, p.label("compatibility"), CompatibilityStrict))
	case !p.Metrics.Accounting:
		p.warn("%s=%s has no effect without --enable-accounting-metrics.", p.label("owner-labels"), OwnersOnInfo)
		p.Labels.Owners = OwnersOnSeries
	default:
		p.overridden("kubernetes-virtual-gpus", p.Kubernetes.VirtualGPUs, "owner-labels")
		p.Kubernetes.VirtualGPUs = false
	}
}

// overridden warns if a setting was given that another active setting overrides.
func (p *parser) overridden(name string, active bool, by string) {
	if active && p.isGiven(name) {
		p.warn("%s has no effect together with %s.", p.label(name), p.label(by))
	}
}

func (p *parser) isGiven(name string) bool { return p.setting(name).layer > layerDefault }

func (p *parser) label(name string) string { return p.setting(name).source() }

// noticeWithoutEffect adds a notice for each setting that differs from its default and has no effect.
func (p *parser) noticeWithoutEffect() {
	defaults := table(&Config{})
	for i := range p.settings {
		s, initial := &p.settings[i], &defaults[i]
		_ = initial.set(s.Default) // tests ensure that every default is valid
		off := p.missing(s)
		switch {
		case s.text() == initial.text():
		case off != "":
			p.warn("%s has no effect without --%s.", s.source(), off)
		case s.unused != "":
			p.warn("%s has no effect: %s.", s.source(), s.unused)
		}
	}
	if p.Containers.Enabled && p.Kubernetes.Enabled {
		p.warn("%s has no effect together with --kubernetes.", p.label("container-labels"))
	}
	if p.Source.Sim.Fallback && p.Source.Kind != SourceAuto {
		p.warn("%s has no effect with --source=%s.", p.label("sim-fallback"), p.Source.Kind)
	}
}

// missing returns the first switch that is off and that the setting needs, directly or indirectly. It returns "" if
// there is none.
func (p *parser) missing(s *Setting) string {
	for s.Needs != "" {
		needed := p.setting(s.Needs)
		if needed.text() != "true" {
			return s.Needs
		}
		s = needed
	}
	return ""
}
