package lint

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// An installation is one set of values on one version of the chart, and what is wrong with it.
type installation struct {
	model.Values
	mistakes []mistake
	// flags says that the settings are flags of a command, not lines of a file.
	flags bool
	// opaque says that there are more flags, which are not known.
	opaque bool
	// lifted says that the command was written for another release, whose defaults are left over in it.
	lifted bool
	// assumed says that the release is not known, so that settings of an earlier one may be right.
	assumed bool
	// resource says that the settings are fields of a custom resource, which the chart fills in
	// whole.
	resource bool
	// route is how configs for the device plugin reach it.
	route sharing.Route
	// byParent and deep find the mistake about a wrong name again.
	byParent, deep map[string]int
}

func newInstallation(table *chart.Table, v chart.Version, settings []*model.Setting) *installation {
	return &installation{Values: model.Values{Table: table, Version: v, Settings: settings}}
}

// A mistake is a finding and the settings it is about.
type mistake struct {
	report.Row
	settings []*model.Setting
}

// add reports a mistake at the first of the settings.
func (in *installation) add(id report.ID, severity report.State, reason, fix, source string, settings ...*model.Setting) {
	f := report.Row{ID: id, State: severity, Reason: reason, Fix: fix, Source: source}
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
	type kind struct {
		id          report.ID
		reason, fix string
		severity    report.State
	}
	at := map[kind]int{}
	more := map[int][]string{}
	for _, m := range in.mistakes {
		if in.assumed && slices.Contains(aged, m.ID) {
			m.State = min(m.State, report.Warning)
		}
		k := kind{m.ID, m.Reason, m.Fix, m.State}
		if i, seen := at[k]; in.flags && seen && m.Subject != "" {
			more[i] = append(more[i], m.Subject)
			continue
		}
		at[k] = len(out)
		out = append(out, m.Row)
	}
	for i, subjects := range more {
		out[i].Subject = strings.Join(append([]string{out[i].Subject}, subjects...), ", ")
	}
	return out
}
