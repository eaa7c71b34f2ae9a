//go:build generate

package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// tag is the tag of every dashboard. Links between dashboards select dashboards by it.
const tag = "gpu-telemetry"

type board struct {
	file, title, about string
	from               string // default time range: from this time until now
	variables          []sdk.VariableModel
	rows               []row
}

// row is a heading with panels, which flow from left to right.
type row struct {
	title  string
	panels []sdk.Panel
}

// columns is the width of a dashboard in Grafana's grid.
const columns = 24

// runbooks is the URL of the page that has a section for each alert.
const runbooks = "https://github.com/gpu-telemetry/dcgm-exporter/blob/main/docs/runbooks.md"

// render returns the JSON of the dashboard.
func (b board) render() ([]byte, error) {
	variables := append([]sdk.VariableModel{datasourceVariable(), clusterVariable()}, b.variables...)
	d := sdk.Dashboard{
		Uid: cog.ToPtr(uid(b.file)), Title: &b.title, Description: &b.about, Tags: []string{tag, "gpu"},
		SchemaVersion: 39, Version: cog.ToPtr(uint32(1)), Editable: cog.ToPtr(true),
		Refresh: cog.ToPtr("30s"), Timezone: cog.ToPtr("browser"),
		GraphTooltip: cog.ToPtr(sdk.DashboardCursorSyncCrosshair),
		Time:         &sdk.DashboardDashboardTime{From: b.from, To: "now"},
		Templating:   sdk.DashboardDashboardTemplating{List: variables},
		Links: []sdk.DashboardLink{
			{
				Title: "GPUs", Type: sdk.DashboardLinkTypeDashboards, Icon: "external link", Tags: []string{tag},
				IncludeVars: true, KeepTime: true,
			},
			{
				Title: "Runbooks", Type: sdk.DashboardLinkTypeLink, Icon: "doc", Tags: []string{},
				Url: cog.ToPtr(runbooks), TargetBlank: true,
			},
		},
		Panels: b.panels(),
	}
	if err := d.Validate(); err != nil {
		return nil, err
	}
	return withAnnotations(d, b.annotations())
}

// panels returns the panels with their IDs and positions.
func (b board) panels() (all []sdk.PanelOrRowPanel) {
	id, y := uint32(1), uint32(0)
	for _, r := range b.rows {
		all = append(all, sdk.PanelOrRowPanel{RowPanel: &sdk.RowPanel{
			Type: "row", Title: &r.title, Id: id, Panels: []sdk.Panel{},
			GridPos: &sdk.GridPos{X: 0, Y: y, W: columns, H: 1},
		}})
		id++
		y++
		x, tallest := uint32(0), uint32(0)
		for _, p := range r.panels {
			if x+p.GridPos.W > columns {
				x, y, tallest = 0, y+tallest, 0
			}
			p.Id = cog.ToPtr(id)
			p.GridPos = &sdk.GridPos{X: x, Y: y, W: p.GridPos.W, H: p.GridPos.H}
			all = append(all, sdk.PanelOrRowPanel{Panel: &p})
			id++
			x += p.GridPos.W
			tallest = max(tallest, p.GridPos.H)
		}
		y += tallest
	}
	return all
}

// listURLs returns pairs for strings.NewReplacer. Each has the placeholder of a panel to which a stat panel of b can
// link, and the panel's URL.
func (b board) listURLs(all []board) (pairs []string) {
	for _, to := range all {
		id := 0
		for _, r := range to.rows {
			id++
			for _, p := range r.panels {
				id++
				if p.Type != "stat" {
					pairs = append(pairs, listPlaceholder(to.file+"/"+*p.Title), b.url(to, id))
				}
			}
		}
	}
	return pairs
}

// listPlaceholder returns a placeholder for the URL of the panel list, written FILE/TITLE. The URL is known only after
// all panels have an ID.
func listPlaceholder(list string) string { return "{{list " + list + "}}" }

// url returns the URL of a panel. It passes on the time range and the variables that both dashboards have.
func (b board) url(to board, panel int) string {
	parts := []string{"viewPanel=" + strconv.Itoa(panel), "${datasource:queryparam}", "${cluster:queryparam}"}
	for _, v := range b.variables {
		if to.has(v.Name) {
			parts = append(parts, "${"+v.Name+":queryparam}")
		}
	}
	return "/d/" + uid(to.file) + "?" + strings.Join(append(parts, "${__url_time_range}"), "&")
}

func uid(file string) string { return "gpu-telemetry-" + file }

// datasource returns a reference to the data source that the variable datasource selects.
func datasource() *common.DataSourceRef {
	return &common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

// annotation marks events in every graph. The SDK's own type lacks the text formats of Prometheus annotations.
type annotation struct {
	Name        string                `json:"name"`
	Datasource  *common.DataSourceRef `json:"datasource"`
	Enable      bool                  `json:"enable"`
	IconColor   string                `json:"iconColor"`
	Expr        string                `json:"expr"`
	Step        string                `json:"step"`
	TitleFormat string                `json:"titleFormat"`
	TextFormat  string                `json:"textFormat"`
	TagKeys     string                `json:"tagKeys"`
}

// annotations returns the annotations of a dashboard: alerts, XIDs, lost GPUs and reloads. A query returns each event
// for only one minute, so that it is drawn once.
func (b board) annotations() []annotation {
	matchers := ofNode
	if b.has("gpu") {
		matchers = ofGPU
	}
	up := `dcgm_exporter_entity_up{` + matchers + `, UUID!="", GPU_I_ID=""}`
	const alert = "alertname, instance, hostname, gpu"
	mark := func(name, color, expr, title, text, tags string) annotation {
		return annotation{
			Name: name, Datasource: datasource(), Enable: true, IconColor: color, Step: "60s",
			Expr: expr, TitleFormat: title, TextFormat: text, TagKeys: tags,
		}
	}
	const place = "{{hostname}} {{instance}} GPU {{gpu}}"
	return []annotation{
		mark("Alerts", "purple",
			"max by ("+alert+") ("+firing("")+") unless on ("+alert+") ("+firing(" offset 1m")+")",
			"{{alertname}} fires", place, "alertname"),
		mark("XIDs", "red",
			"max by (instance, hostname, gpu, xid) "+
				"(DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS{"+matchers+"} > time() - 60)",
			"XID {{xid}}", place, "xid"),
		mark("Lost GPUs", "orange",
			`max by (instance, gpu, reason) (`+up+` == 0) unless on (instance, gpu) (`+up+` offset 1m == 0)`,
			"GPU {{gpu}} down", "{{instance}}: {{reason}}", "reason"),
		mark("Reloads", "blue",
			`changes(dcgm_exporter_config_last_reload_success_timestamp_seconds{`+ofNode+`}[1m]) > 0`,
			"Configuration reloaded", "{{instance}}", "instance"),
	}
}

// has reports whether the dashboard defines the named variable. It ignores the data source and cluster variables, which
// every dashboard has.
func (b board) has(variable string) bool {
	return slices.ContainsFunc(b.variables, func(v sdk.VariableModel) bool { return v.Name == variable })
}

// withAnnotations returns the JSON of a dashboard with its annotations.
func withAnnotations(d sdk.Dashboard, list []annotation) ([]byte, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	if all["annotations"], err = json.Marshal(map[string]any{"list": list}); err != nil {
		return nil, err
	}
	return encode(all)
}

func datasourceVariable() sdk.VariableModel {
	return sdk.VariableModel{
		Type: sdk.VariableTypeDatasource, Name: "datasource", Label: cog.ToPtr("Data source"),
		Query:   &sdk.StringOrMap{String: cog.ToPtr("prometheus")},
		Refresh: cog.ToPtr(sdk.VariableRefreshOnDashboardLoad),
		Multi:   cog.ToPtr(false), IncludeAll: cog.ToPtr(false), Options: []sdk.VariableOption{},
	}
}

// queried returns a variable whose values come from a Prometheus query.
func queried(name, label, query, regex string) sdk.VariableModel {
	return sdk.VariableModel{
		Type: sdk.VariableTypeQuery, Name: name, Label: &label, Datasource: datasource(), Regex: &regex,
		Query:   &sdk.StringOrMap{Map: map[string]any{"query": query, "refId": name}},
		Refresh: cog.ToPtr(sdk.VariableRefreshOnTimeRangeChanged), Sort: cog.ToPtr(sdk.VariableSortNumericalAsc),
		Multi: cog.ToPtr(true), IncludeAll: cog.ToPtr(true), AllValue: cog.ToPtr(".*"), Options: []sdk.VariableOption{},
		Current: &sdk.VariableOption{
			Text:  sdk.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value: sdk.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
		},
	}
}

// clusterVariable lists the values of the cluster label. If no series has the label, the only choice is All.
func clusterVariable() sdk.VariableModel {
	const names = "dcgm_exporter_build_info|DCGM_FI_DEV_GPU_TEMP|DCGM_FI_DEV_GPU_TEMP_CELSIUS"
	return queried("cluster", "Cluster", `label_values({__name__=~"`+names+`", cluster!=""}, cluster)`, "")
}

// nodeVariable lists nodes. It shows host names, and its values are instances.
func nodeVariable() sdk.VariableModel {
	hosts := either("DCGM_FI_DEV_GPU_TEMP", func(name string) string { return name + "{" + ofCluster + "}" })
	return queried("instance", "Node",
		"query_result(group by (hostname, instance) ("+hosts+") or on (instance) group by (instance) "+
			"(dcgm_exporter_build_info{"+ofCluster+"}))",
		`/(?:hostname="(?<text>[^"]+)".*)?instance="(?<value>[^"]+)"/`)
}

// oneNodeVariable is like nodeVariable, but initially selects the first node instead of all.
func oneNodeVariable() sdk.VariableModel {
	v := nodeVariable()
	v.Current = nil
	return v
}

func gpuVariable() sdk.VariableModel {
	return queried("gpu", "GPU", `label_values(dcgm_exporter_entity_up{`+ofNode+`, UUID!=""}, gpu)`, "")
}

func namespaceVariable() sdk.VariableModel {
	query := everyOwner("dcgm_pod_gpu_info", ofNode, "", "")
	return queried("namespace", "Namespace", "query_result(group by (namespace) ("+query+"))", `/namespace="([^"]+)"/`)
}

func podVariable() sdk.VariableModel {
	query := strings.ReplaceAll(owned("dcgm_pod_gpu_info", ofNode, "", ""), `, exported_pod=~"$pod"`, "")
	query = strings.ReplaceAll(query, `, pod=~"$pod"`, "")
	return queried("pod", "Pod", "query_result(group by (pod) ("+query+"))", `/pod="([^"]+)"/`)
}
