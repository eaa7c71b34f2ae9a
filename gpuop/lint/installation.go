package lint

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// rules run in this order: later ones leave out what earlier ones drop.
var rules = []func(*installation){
	(*installation).keys, (*installation).twice, (*installation).types, (*installation).images,
	(*installation).dead, (*installation).contradictions, (*installation).oldDefaults, (*installation).versions,
}

// An installation is one set of values on one version of the chart, and what is wrong with it.
type installation struct {
	model.Values
	mistakes []mistake
	// corrections are the settings that are to be written otherwise.
	corrections map[*model.Setting]*correction
	// flags says that the settings are flags of a command, not lines of a file.
	flags bool
	// opaque says that there are more flags, which are not known.
	opaque bool
	// lifted says that the command was written for another release, whose defaults are left over in it.
	lifted bool
	// assumed says that the release is not known, so that settings of an earlier one may be right.
	assumed bool
	// absent says that the chart is in a folder that is not here, so that it may be somebody's own.
	absent bool
	// keep says that settings without effect stay in the file: the user wrote them.
	keep bool
	// resource says that the settings are fields of a custom resource, which the chart fills in whole.
	resource bool
}

// A correction is how a setting is to be written.
type correction struct {
	fix.Edit
	// asString says that the flag has to be --set-string, since a text is wanted.
	asString bool
	// idle says that Drop is for commands alone: the release reads the setting, and a file keeps it.
	idle bool
}

// changes reports whether the setting is written otherwise.
func (c *correction) changes() bool { return c.Changes() || c.asString }

func newInstallation(table *chart.Table, v chart.Version, settings []*model.Setting) *installation {
	return &installation{Values: model.Values{Table: table, Version: v, Settings: settings}, corrections: map[*model.Setting]*correction{}}
}

// judge runs every rule on the installation.
func (in *installation) judge() {
	for _, rule := range rules {
		rule(in)
	}
}

// correct returns the correction of a setting, to be filled in.
func (in *installation) correct(s *model.Setting) *correction {
	if in.corrections[s] == nil {
		in.corrections[s] = &correction{Edit: fix.Edit{Path: s.Path}}
	}
	return in.corrections[s]
}

// correction returns the correction of a setting so far.
func (in *installation) correction(s *model.Setting) correction {
	if c := in.corrections[s]; c != nil {
		return *c
	}
	return correction{}
}

// set makes a value the right one for a setting.
func (in *installation) set(s *model.Setting, value string) { in.correct(s).Value = &value }

// A mistake is a finding and the settings it is about.
type mistake struct {
	report.Row
	settings []*model.Setting
}

// add reports a mistake at the first of the settings.
func (in *installation) add(id report.ID, severity report.State, reason, fix string, settings ...*model.Setting) {
	f := report.Row{ID: id, State: severity, Reason: reason, Fix: fix}
	if len(settings) > 0 {
		names := make([]string, len(settings))
		for i, s := range settings {
			names[i] = s.Name()
		}
		f.Subject = strings.Join(names, ", ")
		f.File, f.Line, f.Column = settings[0].File, settings[0].Line, settings[0].Column
	}
	in.mistakes = append(in.mistakes, mistake{f, settings})
}

// aged are the findings that another release of the chart would not have.
var aged = []report.ID{"key-gone", "key-not-yet", "old-default"}

// findings returns what was found; of a command the mistakes of one kind become one finding.
func (in *installation) findings() []report.Row {
	var out []report.Row
	for _, m := range in.mistakes {
		if in.assumed && slices.Contains(aged, m.ID) || in.absent && m.ID == "unknown-key" {
			m.State = min(m.State, report.Warning)
		}
		i := slices.IndexFunc(out, func(f report.Row) bool {
			return f.ID == m.ID && f.State == m.State && f.Reason == m.Reason && f.Fix == m.Fix
		})
		if in.flags && i >= 0 && m.Subject != "" {
			out[i].Subject += ", " + m.Subject
			continue
		}
		out = append(out, m.Row)
	}
	return out
}
