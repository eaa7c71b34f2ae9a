//go:build generate

package main

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Units of Grafana, one for each base unit of the catalog, and two for what is counted and when.
const (
	ratio     = "percentunit"
	watts     = "watt"
	joules    = "joule"
	celsius   = "celsius"
	hertz     = "hertz"
	inBytes   = "bytes"
	byteRate  = "Bps"
	seconds   = "s"
	count     = "none"
	perSecond = "cps"
	when      = "dateTimeAsIso"
)

func query(expr, legend string, instant bool, format prometheus.PromQueryFormat, index int) variants.Dataquery {
	q := prometheus.Dataquery{
		Expr: expr, LegendFormat: &legend, RefId: cog.ToPtr(string(rune('A' + index))), Datasource: datasource(),
		EditorMode: cog.ToPtr(prometheus.QueryEditorModeCode), Format: &format,
	}
	if instant {
		q.Instant = cog.ToPtr(true)
	} else {
		q.Range = cog.ToPtr(true)
	}
	return q
}

func panel(kind, title, about string, w, h uint32) sdk.Panel {
	return sdk.Panel{Type: kind, Title: &title, Description: &about, Datasource: datasource(), GridPos: &sdk.GridPos{W: w, H: h}}
}

// steps are thresholds: a color from the beginning, then value and color in turn.
func steps(base string, more ...any) *sdk.ThresholdsConfig {
	t := &sdk.ThresholdsConfig{Mode: sdk.ThresholdsModeAbsolute, Steps: []sdk.Threshold{{Color: base}}}
	for i := 0; i+1 < len(more); i += 2 {
		t.Steps = append(t.Steps, sdk.Threshold{Value: cog.ToPtr(more[i].(float64)), Color: more[i+1].(string)})
	}
	return t
}

// badAboveZero colors what should be 0.
func badAboveZero() *sdk.ThresholdsConfig { return steps("green", 1.0, "red") }

func plain() *sdk.ThresholdsConfig { return steps("text") }

// number is a panel of one figure, of now.
func number(title, about, unit string, thresholds *sdk.ThresholdsConfig, expr string) sdk.Panel {
	p := panel("stat", title, about, 4, 4)
	p.Targets = []variants.Dataquery{query(expr, "", true, prometheus.PromQueryFormatTimeSeries, 0)}
	p.Options = stat.Options{
		GraphMode: common.BigValueGraphModeNone, ColorMode: common.BigValueColorModeValue, JustifyMode: common.BigValueJustifyModeAuto,
		TextMode: common.BigValueTextModeAuto, WideLayout: true, Orientation: common.VizOrientationAuto,
		PercentChangeColorMode: common.PercentChangeColorModeStandard,
		ReduceOptions:          common.ReduceDataOptions{Calcs: []string{"lastNotNull"}, Values: cog.ToPtr(false), Fields: cog.ToPtr("")},
	}
	p.FieldConfig = &sdk.FieldConfigSource{
		Defaults: sdk.FieldConfig{
			Unit: &unit, Thresholds: thresholds, Color: &sdk.FieldColor{Mode: sdk.FieldColorModeIdThresholds}, NoValue: cog.ToPtr("–"),
		},
		Overrides: []sdk.DashboardFieldConfigSourceOverrides{},
	}
	if unit == count {
		p.FieldConfig.Defaults.Decimals = cog.ToPtr(0.0)
	}
	return p
}

// listed links a figure to the panel that lists what it counts, FILE/TITLE.
func listed(list string, p sdk.Panel) sdk.Panel {
	file, title, _ := strings.Cut(list, "/")
	p.FieldConfig.Defaults.Links = []sdk.DashboardLink{{
		Title: "List: " + title, Type: sdk.DashboardLinkTypeLink, Tags: []string{},
		Url: cog.ToPtr("/d/" + uid(file) + "?viewPanel={{panel " + list + "}}&${datasource:queryparam}&${cluster:queryparam}&${instance:queryparam}&${__url_time_range}"),
	}}
	return p
}

// firingAlerts is a table of the alerts that fire, with links to their runbooks.
func firingAlerts() sdk.Panel {
	alert := label("alertname", "Alert", 0)
	alert.url = runbooks + "#${__value.raw}"
	return wide(24, height(6, grid("Firing alerts", "Alerts of deployment/rules that fire now. An alert links to its runbook.", "Severity", []string{"instance", "hostname"},
		alert, label("severity", "Severity", 110), label("node", "Node", 220), label("gpu", "GPU", 60),
		value("Firing", relabel("max by (alertname, severity, node, instance, hostname, gpu) ("+firing("")+")",
			`"node", "$1", "instance", "(.+)"`, `"node", "$1", "hostname", "(.+)"`), "", 0))))
}

// decimals sets how many are shown.
func decimals(n float64, p sdk.Panel) sdk.Panel {
	p.FieldConfig.Defaults.Decimals = &n
	return p
}

// wide sets how many of the 24 columns a panel takes.
func wide(w uint32, p sdk.Panel) sdk.Panel {
	p.GridPos.W = w
	return p
}

// A line is a query of a graph.
type line struct{ expr, legend string }

// graph is a panel of lines over time.
func graph(title, about, unit string, lines ...line) sdk.Panel {
	p := panel("timeseries", title, about, 12, 8)
	for i, l := range lines {
		p.Targets = append(p.Targets, query(l.expr, l.legend, false, prometheus.PromQueryFormatTimeSeries, i))
	}
	p.Options = timeseries.Options{
		Legend: common.VizLegendOptions{
			DisplayMode: common.LegendDisplayModeTable, Placement: common.LegendPlacementRight, ShowLegend: true, Calcs: []string{"lastNotNull", "max"},
			SortBy: cog.ToPtr("Last *"), SortDesc: cog.ToPtr(true),
		},
		Tooltip: common.VizTooltipOptions{Mode: common.TooltipDisplayModeMulti, Sort: common.SortOrderDescending},
	}
	d := sdk.FieldConfig{Unit: &unit, Color: &sdk.FieldColor{Mode: sdk.FieldColorModeIdPaletteClassic}, Thresholds: plain(), Custom: common.GraphFieldConfig{
		DrawStyle: cog.ToPtr(common.GraphDrawStyleLine), LineWidth: cog.ToPtr(1.0), FillOpacity: cog.ToPtr(0.0),
		ShowPoints: cog.ToPtr(common.VisibilityModeNever),
	}}
	d.Min = cog.ToPtr(0.0)
	if unit == ratio {
		d.Max = cog.ToPtr(1.0)
	}
	p.FieldConfig = &sdk.FieldConfigSource{Defaults: d, Overrides: []sdk.DashboardFieldConfigSourceOverrides{}}
	return p
}

// stacked piles the lines of a graph up.
func stacked(p sdk.Panel) sdk.Panel {
	custom := p.FieldConfig.Defaults.Custom.(common.GraphFieldConfig)
	custom.Stacking = &common.StackingConfig{Mode: cog.ToPtr(common.StackingModeNormal), Group: cog.ToPtr("A")}
	custom.FillOpacity = cog.ToPtr(40.0)
	p.FieldConfig.Defaults.Custom = custom
	return p
}

// unbounded takes the zero off the axis: for what is far from zero, or below it.
func unbounded(p sdk.Panel) sdk.Panel {
	p.FieldConfig.Defaults.Min, p.FieldConfig.Defaults.Max = nil, nil
	return p
}

// timeline is a panel with a bar for each series while it has a value.
func timeline(title, about string, lines ...line) sdk.Panel {
	p := panel("state-timeline", title, about, 24, 7)
	for i, l := range lines {
		p.Targets = append(p.Targets, query(l.expr, l.legend, false, prometheus.PromQueryFormatTimeSeries, i))
	}
	p.Options = statetimeline.Options{
		ShowValue: common.VisibilityModeAuto, RowHeight: 0.8, MergeValues: cog.ToPtr(true),
		Legend:  common.VizLegendOptions{DisplayMode: common.LegendDisplayModeList, Placement: common.LegendPlacementBottom, ShowLegend: false, Calcs: []string{}},
		Tooltip: common.VizTooltipOptions{Mode: common.TooltipDisplayModeSingle, Sort: common.SortOrderNone},
	}
	p.FieldConfig = &sdk.FieldConfigSource{
		Defaults:  sdk.FieldConfig{Unit: cog.ToPtr(count), Color: &sdk.FieldColor{Mode: sdk.FieldColorModeIdThresholds}, Thresholds: steps("orange", 5.0, "red")},
		Overrides: []sdk.DashboardFieldConfigSourceOverrides{},
	}
	return p
}

// A column is a label of a table's series, or the value of a query.
type column struct {
	label, title string
	expr, unit   string // of a value
	width        float64
	url          string   // that the value links to
	link         string   // a dashboard
	sets         []string // and its variables that the row sets
	decimals     float64
}

// label is a column with a label of the series.
func label(name, title string, width float64) column {
	return column{label: name, title: title, width: width}
}

// value is a column with the value of a query.
func value(title, expr, unit string, width float64) column {
	return column{title: title, expr: expr, unit: unit, width: width, decimals: -1}
}

// digits sets how many decimals a column shows.
func digits(n float64, c column) column {
	c.decimals = n
	return c
}

// to links the column to a dashboard, and sets its variables from labels of the row: "instance", or
// "xid:code" where the names differ.
func to(file string, c column, variables ...string) column {
	c.link, c.sets = file, variables
	return c
}

// address is where a column links to. A field is called as its column is, or as its label where
// that is hidden.
func (c column) address(columns []column) string {
	var set []string
	for _, v := range c.sets {
		name, from, other := strings.Cut(v, ":")
		if !other {
			from = name
		}
		for _, d := range columns {
			if d.label == from {
				from = d.title
				break
			}
		}
		set = append(set, "var-"+name+"=${__data.fields[\""+from+"\"]:percentencode}")
	}
	return "/d/" + uid(c.link) + "?" + strings.Join(append(set, "${datasource:queryparam}", "${cluster:queryparam}", "${__url_time_range}"), "&")
}

// grid is a table: a row for each set of labels, of now. Labels that are no column are hidden.
func grid(title, about, sortBy string, hidden []string, columns ...column) sdk.Panel {
	p := panel("table", title, about, 12, 8)
	exclude, rename, index := map[string]any{"Time": true}, map[string]any{}, map[string]any{}
	overrides := []sdk.DashboardFieldConfigSourceOverrides{}
	for _, h := range hidden { // links need them
		overrides = append(overrides, sdk.DashboardFieldConfigSourceOverrides{
			Matcher: sdk.MatcherConfig{Id: "byName", Options: h}, Properties: []sdk.DynamicConfigValue{{Id: "custom.hidden", Value: true}},
		})
	}
	values := 0
	for _, c := range columns {
		if c.expr != "" {
			values++
		}
	}
	at := 0
	for i, c := range columns {
		source := c.label
		var properties []sdk.DynamicConfigValue
		if c.expr != "" {
			p.Targets = append(p.Targets, query(c.expr, "", true, prometheus.PromQueryFormatTable, at))
			source = "Value"
			if values > 1 {
				source = "Value #" + string(rune('A'+at))
			}
			at++
			if c.unit == "" {
				exclude[source] = true
				continue
			}
			properties = append(properties, sdk.DynamicConfigValue{Id: "unit", Value: c.unit})
			if c.decimals >= 0 {
				properties = append(properties, sdk.DynamicConfigValue{Id: "decimals", Value: c.decimals})
			}
		}
		rename[source], index[source] = c.title, i
		if c.width > 0 {
			properties = append(properties, sdk.DynamicConfigValue{Id: "custom.width", Value: c.width})
		}
		if c.link != "" {
			properties = append(properties, sdk.DynamicConfigValue{Id: "links", Value: []map[string]any{{"title": "Open " + c.title, "url": c.address(columns)}}})
		}
		if c.url != "" {
			properties = append(properties, sdk.DynamicConfigValue{Id: "links", Value: []map[string]any{{"title": "Open the runbook", "url": c.url, "targetBlank": true}}})
		}
		if len(properties) > 0 {
			overrides = append(overrides, sdk.DashboardFieldConfigSourceOverrides{
				Matcher: sdk.MatcherConfig{Id: "byName", Options: c.title}, Properties: properties,
			})
		}
	}
	p.Transformations = []sdk.DataTransformerConfig{
		{Id: "merge", Options: map[string]any{}},
		{Id: "organize", Options: map[string]any{"excludeByName": exclude, "indexByName": index, "renameByName": rename}},
	}
	o := table.Options{ShowHeader: true, CellHeight: cog.ToPtr(common.TableCellHeightSm)}
	if sortBy != "" {
		name, down := strings.CutPrefix(sortBy, "-")
		o.SortBy = []common.TableSortByFieldState{{DisplayName: name, Desc: &down}}
	}
	p.Options = o
	p.FieldConfig = &sdk.FieldConfigSource{
		Defaults: sdk.FieldConfig{
			Unit: cog.ToPtr(count), Thresholds: plain(), Color: &sdk.FieldColor{Mode: sdk.FieldColorModeIdThresholds},
			Custom: common.TableFieldOptions{Align: common.FieldTextAlignmentAuto, Filterable: cog.ToPtr(true)},
		},
		Overrides: overrides,
	}
	return p
}

// height sets the rows that a panel takes.
func height(h uint32, p sdk.Panel) sdk.Panel {
	p.GridPos.H = h
	return p
}
