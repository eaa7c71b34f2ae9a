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

// These are Grafana's units for the base units of the catalog, for counts, for rates of counts and for times.
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

// query returns the query of a panel. Its reference ID is the letter at index.
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

// panel returns a panel without queries and position.
func panel(kind, title, about string, w, h uint32) sdk.Panel {
	return sdk.Panel{
		Type: kind, Title: &title, Description: &about, Datasource: datasource(), GridPos: &sdk.GridPos{W: w, H: h},
	}
}

// steps returns thresholds: the base color, followed by pairs of a value and the color from that value upward.
func steps(base string, more ...any) *sdk.ThresholdsConfig {
	t := &sdk.ThresholdsConfig{Mode: sdk.ThresholdsModeAbsolute, Steps: []sdk.Threshold{{Color: base}}}
	for i := 0; i+1 < len(more); i += 2 {
		t.Steps = append(t.Steps, sdk.Threshold{Value: cog.ToPtr(more[i].(float64)), Color: more[i+1].(string)})
	}
	return t
}

// badAboveZero colors a count green if it is 0, and red otherwise.
func badAboveZero() *sdk.ThresholdsConfig { return steps("green", 1.0, "red") }

// plain colors a value like other text.
func plain() *sdk.ThresholdsConfig { return steps("text") }

// number returns a stat panel with the current value of a query. A click on it opens the panel that list names as
// FILE/TITLE, which shows what the value consists of.
func number(title, list, about, unit string, thresholds *sdk.ThresholdsConfig, expr string) sdk.Panel {
	p := panel("stat", title, about, 4, 4)
	p.Targets = []variants.Dataquery{query(expr, "", true, prometheus.PromQueryFormatTimeSeries, 0)}
	p.Options = stat.Options{
		GraphMode: common.BigValueGraphModeNone, ColorMode: common.BigValueColorModeValue,
		JustifyMode: common.BigValueJustifyModeAuto, TextMode: common.BigValueTextModeAuto,
		WideLayout: true, Orientation: common.VizOrientationAuto,
		PercentChangeColorMode: common.PercentChangeColorModeStandard,
		ReduceOptions: common.ReduceDataOptions{
			Calcs: []string{"lastNotNull"}, Values: cog.ToPtr(false), Fields: cog.ToPtr(""),
		},
	}
	_, listTitle, _ := strings.Cut(list, "/")
	p.FieldConfig = &sdk.FieldConfigSource{
		Defaults: sdk.FieldConfig{
			Unit: &unit, Thresholds: thresholds, NoValue: cog.ToPtr("–"),
			Color: &sdk.FieldColor{Mode: sdk.FieldColorModeIdThresholds},
			Links: []sdk.DashboardLink{{
				Title: "List: " + listTitle, Type: sdk.DashboardLinkTypeLink, Tags: []string{},
				Url: cog.ToPtr(listPlaceholder(list)),
			}},
		},
		Overrides: []sdk.DashboardFieldConfigSourceOverrides{},
	}
	if unit == count {
		p.FieldConfig.Defaults.Decimals = cog.ToPtr(0.0)
	}
	return p
}

// firingAlerts returns a table of the alerts that fire, with links to their runbooks.
func firingAlerts() sdk.Panel {
	alert := label("alertname", "Alert", 0)
	alert.url = runbooks + "#${__value.raw}"
	alerts := relabel("max by (alertname, severity, node, instance, hostname, gpu) ("+firing("")+")",
		`"node", "$1", "instance", "(.+)"`, `"node", "$1", "hostname", "(.+)"`)
	return wide(24, height(6, grid("Firing alerts",
		"Alerts from deployment/rules that fire now. Click an alert to open its runbook.",
		"Severity", []string{"instance", "hostname"},
		alert, label("severity", "Severity", 110), label("node", "Node", 220), label("gpu", "GPU", 60),
		value("Firing", alerts, "", 0))))
}

// decimals sets the number of decimals of a stat panel.
func decimals(n float64, p sdk.Panel) sdk.Panel {
	p.FieldConfig.Defaults.Decimals = &n
	return p
}

// wide sets the width of a panel, in columns.
func wide(w uint32, p sdk.Panel) sdk.Panel {
	p.GridPos.W = w
	return p
}

// A line is a query of a graph, with the legend of its series.
type line struct{ expr, legend string }

// graph returns a panel with lines over time.
func graph(title, about, unit string, lines ...line) sdk.Panel {
	p := panel("timeseries", title, about, 12, 8)
	for i, l := range lines {
		p.Targets = append(p.Targets, query(l.expr, l.legend, false, prometheus.PromQueryFormatTimeSeries, i))
	}
	p.Options = timeseries.Options{
		Legend: common.VizLegendOptions{
			DisplayMode: common.LegendDisplayModeTable, Placement: common.LegendPlacementRight, ShowLegend: true,
			Calcs: []string{"lastNotNull", "max"}, SortBy: cog.ToPtr("Last *"), SortDesc: cog.ToPtr(true),
		},
		Tooltip: common.VizTooltipOptions{Mode: common.TooltipDisplayModeMulti, Sort: common.SortOrderDescending},
	}
	d := sdk.FieldConfig{
		Unit: &unit, Color: &sdk.FieldColor{Mode: sdk.FieldColorModeIdPaletteClassic}, Thresholds: plain(),
		Custom: common.GraphFieldConfig{
			DrawStyle: cog.ToPtr(common.GraphDrawStyleLine), LineWidth: cog.ToPtr(1.0), FillOpacity: cog.ToPtr(0.0),
			ShowPoints: cog.ToPtr(common.VisibilityModeNever),
		},
	}
	d.Min = cog.ToPtr(0.0)
	if unit == ratio {
		d.Max = cog.ToPtr(1.0)
	}
	p.FieldConfig = &sdk.FieldConfigSource{Defaults: d, Overrides: []sdk.DashboardFieldConfigSourceOverrides{}}
	return p
}

// stacked stacks the lines of a graph.
func stacked(p sdk.Panel) sdk.Panel {
	custom := p.FieldConfig.Defaults.Custom.(common.GraphFieldConfig)
	custom.Stacking = &common.StackingConfig{Mode: cog.ToPtr(common.StackingModeNormal), Group: cog.ToPtr("A")}
	custom.FillOpacity = cog.ToPtr(40.0)
	p.FieldConfig.Defaults.Custom = custom
	return p
}

// unbounded removes the limits of the axis, for values below zero or above the usual maximum.
func unbounded(p sdk.Panel) sdk.Panel {
	p.FieldConfig.Defaults.Min, p.FieldConfig.Defaults.Max = nil, nil
	return p
}

// timeline returns a panel with a bar for each series. The bar is drawn while the series has a value.
func timeline(title, about string, lines ...line) sdk.Panel {
	p := panel("state-timeline", title, about, 24, 7)
	for i, l := range lines {
		p.Targets = append(p.Targets, query(l.expr, l.legend, false, prometheus.PromQueryFormatTimeSeries, i))
	}
	p.Options = statetimeline.Options{
		ShowValue: common.VisibilityModeAuto, RowHeight: 0.8, MergeValues: cog.ToPtr(true),
		Legend: common.VizLegendOptions{
			DisplayMode: common.LegendDisplayModeList, Placement: common.LegendPlacementBottom, ShowLegend: false,
			Calcs: []string{},
		},
		Tooltip: common.VizTooltipOptions{Mode: common.TooltipDisplayModeSingle, Sort: common.SortOrderNone},
	}
	p.FieldConfig = &sdk.FieldConfigSource{
		Defaults: sdk.FieldConfig{
			Unit: cog.ToPtr(count), Color: &sdk.FieldColor{Mode: sdk.FieldColorModeIdThresholds},
			Thresholds: steps("orange", 5.0, "red"),
		},
		Overrides: []sdk.DashboardFieldConfigSourceOverrides{},
	}
	return p
}

// A column of a table shows a label of the series, or the value of a query.
type column struct {
	label, title string
	expr, unit   string // for a value; without a unit, the value is hidden
	width        float64
	decimals     float64
	url          string   // URL to which the cells link
	link         string   // file of the dashboard to which the cells link
	sets         []string // variables of that dashboard that are set from the row
}

// label returns a column with a label of the series.
func label(name, title string, width float64) column {
	return column{label: name, title: title, width: width}
}

// value returns a column with the value of a query.
func value(title, expr, unit string, width float64) column {
	return column{title: title, expr: expr, unit: unit, width: width, decimals: -1}
}

// digits sets the number of decimals of a column.
func digits(n float64, c column) column {
	c.decimals = n
	return c
}

// to makes the cells of a column link to a dashboard. The variables of that dashboard are set from labels of the row.
// If the names differ, a variable is written "VARIABLE:LABEL".
func to(file string, c column, variables ...string) column {
	c.link, c.sets = file, variables
	return c
}

// address returns the URL to which the cells of a column link. Grafana identifies a field by the title of its column; a
// hidden field keeps the name of its label.
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
	set = append(set, "${datasource:queryparam}", "${cluster:queryparam}", "${__url_time_range}")
	return "/d/" + uid(c.link) + "?" + strings.Join(set, "&")
}

// grid returns a table of current values with a row for each set of labels. The rows are sorted by the column sortBy,
// in descending order if sortBy begins with "-". Labels in hidden are not shown, but links can use them. All labels of
// the queries must be columns or hidden.
func grid(title, about, sortBy string, hidden []string, columns ...column) sdk.Panel {
	p := panel("table", title, about, 12, 8)
	overrides := []sdk.DashboardFieldConfigSourceOverrides{}
	for _, h := range hidden {
		overrides = append(overrides, override(h, sdk.DynamicConfigValue{Id: "custom.hidden", Value: true}))
	}
	values := 0
	for _, c := range columns {
		if c.expr != "" {
			values++
		}
	}
	exclude, rename, index := map[string]any{"Time": true}, map[string]any{}, map[string]any{}
	for i, c := range columns {
		source := c.label
		if c.expr != "" {
			at := len(p.Targets)
			p.Targets = append(p.Targets, query(c.expr, "", true, prometheus.PromQueryFormatTable, at))
			source = "Value"
			if values > 1 {
				source = "Value #" + string(rune('A'+at))
			}
			if c.unit == "" {
				exclude[source] = true
				continue
			}
		}
		rename[source], index[source] = c.title, i
		if properties := c.properties(columns); len(properties) > 0 {
			overrides = append(overrides, override(c.title, properties...))
		}
	}
	p.Transformations = []sdk.DataTransformerConfig{
		{Id: "merge", Options: map[string]any{}},
		{Id: "organize", Options: map[string]any{"excludeByName": exclude, "indexByName": index,
			"renameByName": rename}},
	}
	name, down := strings.CutPrefix(sortBy, "-")
	o := table.Options{ShowHeader: true, CellHeight: cog.ToPtr(common.TableCellHeightSm)}
	if name != "" {
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

// properties returns the settings of a column: unit, decimals, width and links.
func (c column) properties(columns []column) (all []sdk.DynamicConfigValue) {
	add := func(id string, v any) { all = append(all, sdk.DynamicConfigValue{Id: id, Value: v}) }
	if c.expr != "" {
		add("unit", c.unit)
		if c.decimals >= 0 {
			add("decimals", c.decimals)
		}
	}
	if c.width > 0 {
		add("custom.width", c.width)
	}
	if c.link != "" {
		add("links", []map[string]any{{"title": "Open " + c.title, "url": c.address(columns)}})
	}
	if c.url != "" {
		add("links", []map[string]any{{"title": "Open the runbook", "url": c.url, "targetBlank": true}})
	}
	return all
}

// override returns settings of a field of a table.
func override(field string, properties ...sdk.DynamicConfigValue) sdk.DashboardFieldConfigSourceOverrides {
	return sdk.DashboardFieldConfigSourceOverrides{
		Matcher: sdk.MatcherConfig{Id: "byName", Options: field}, Properties: properties,
	}
}

// height sets the height of a panel, in units of Grafana's grid.
func height(h uint32, p sdk.Panel) sdk.Panel {
	p.GridPos.H = h
	return p
}
