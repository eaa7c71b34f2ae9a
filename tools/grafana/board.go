//go:build generate

package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// tag is what the dashboards are found and linked by.
const tag = "gpu-telemetry"

// A board is a dashboard.
type board struct {
	file, title, about string
	from               string // the range that it opens with
	variables          []sdk.VariableModel
	rows               []row
}

// A row is a heading with panels. Panels flow from left to right.
type row struct {
	title  string
	panels []sdk.Panel
}

const columns = 24

// runbooks is the address of the sections about alerts.
const runbooks = "https://github.com/gpu-telemetry/dcgm-exporter/blob/main/docs/runbooks.md"

// render returns the JSON of the dashboard.
func (b board) render() ([]byte, error) {
	d := sdk.Dashboard{
		Uid: cog.ToPtr(uid(b.file)), Title: &b.title, Description: &b.about, Tags: []string{tag, "gpu"},
		SchemaVersion: 39, Version: cog.ToPtr(uint32(1)), Editable: cog.ToPtr(true), Refresh: cog.ToPtr("30s"), Timezone: cog.ToPtr("browser"),
		GraphTooltip: cog.ToPtr(sdk.DashboardCursorSyncCrosshair), Time: &sdk.DashboardDashboardTime{From: b.from, To: "now"},
		Templating: sdk.DashboardDashboardTemplating{List: append([]sdk.VariableModel{datasourceVariable(), clusterVariable()}, b.variables...)},
		Links: []sdk.DashboardLink{
			{Title: "GPUs", Type: sdk.DashboardLinkTypeDashboards, Icon: "external link", Tags: []string{tag}, IncludeVars: true, KeepTime: true},
			{Title: "Runbooks", Type: sdk.DashboardLinkTypeLink, Icon: "doc", Tags: []string{}, Url: cog.ToPtr(runbooks), TargetBlank: true},
		},
	}
	id, y := uint32(1), uint32(0)
	for _, r := range b.rows {
		d.Panels = append(d.Panels, sdk.PanelOrRowPanel{RowPanel: &sdk.RowPanel{
			Type: "row", Title: &r.title, Id: id, Panels: []sdk.Panel{}, GridPos: &sdk.GridPos{X: 0, Y: y, W: columns, H: 1},
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
			d.Panels = append(d.Panels, sdk.PanelOrRowPanel{Panel: &p})
			id++
			x += p.GridPos.W
			tallest = max(tallest, p.GridPos.H)
		}
		y += tallest
	}
	if err := d.Validate(); err != nil {
		return nil, err
	}
	return withAnnotations(d, b.annotations())
}

// panelIDs returns the placeholder of each list of the dashboard, each followed by the panel's id.
func (b board) panelIDs() (pairs []string) {
	id := 0
	for _, r := range b.rows {
		id++
		for _, p := range r.panels {
			id++
			if p.Type != "stat" {
				pairs = append(pairs, "{{panel "+b.file+"/"+*p.Title+"}}", strconv.Itoa(id))
			}
		}
	}
	return pairs
}

func uid(file string) string { return "gpu-telemetry-" + file }

func datasource() *common.DataSourceRef {
	return &common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

// An annotation marks moments in every graph. The SDK's model lacks the texts of annotations from
// Prometheus, so they are written beside it.
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

// annotations are those of every dashboard: alerts, XIDs, GPUs that are lost, reloads. Each holds for a
// minute, so that the event is one mark.
func (b board) annotations() []annotation {
	matchers := ofNode
	if b.has("gpu") {
		matchers = ofGPU
	}
	up := `dcgm_exporter_entity_up{` + matchers + `, UUID!="", GPU_I_ID=""}`
	const alert = "alertname, instance, hostname, gpu"
	return []annotation{
		{Name: "Alerts", Datasource: datasource(), Enable: true, IconColor: "purple", Step: "60s",
			Expr:        "max by (" + alert + ") (" + firing("") + ") unless on (" + alert + ") (" + firing(" offset 1m") + ")",
			TitleFormat: "{{alertname}} fires", TextFormat: "{{hostname}} {{instance}} GPU {{gpu}}", TagKeys: "alertname"},
		{Name: "XIDs", Datasource: datasource(), Enable: true, IconColor: "red", Step: "60s",
			Expr:        `max by (instance, hostname, gpu, xid) (DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS{` + matchers + `} > time() - 60)`,
			TitleFormat: "XID {{xid}}", TextFormat: "{{hostname}} {{instance}} GPU {{gpu}}", TagKeys: "xid"},
		{Name: "Lost GPUs", Datasource: datasource(), Enable: true, IconColor: "orange", Step: "60s",
			Expr:        `max by (instance, gpu, reason) (` + up + ` == 0) unless on (instance, gpu) (` + up + ` offset 1m == 0)`,
			TitleFormat: "GPU {{gpu}} down", TextFormat: "{{instance}}: {{reason}}", TagKeys: "reason"},
		{Name: "Reloads", Datasource: datasource(), Enable: true, IconColor: "blue", Step: "60s",
			Expr:        `changes(dcgm_exporter_config_last_reload_success_timestamp_seconds{` + ofNode + `}[1m]) > 0`,
			TitleFormat: "Configuration reloaded", TextFormat: "{{instance}}", TagKeys: "instance"},
	}
}

func (b board) has(variable string) bool {
	for _, v := range b.variables {
		if v.Name == variable {
			return true
		}
	}
	return false
}

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
		Query: &sdk.StringOrMap{String: cog.ToPtr("prometheus")}, Refresh: cog.ToPtr(sdk.VariableRefreshOnDashboardLoad),
		Multi: cog.ToPtr(false), IncludeAll: cog.ToPtr(false), Options: []sdk.VariableOption{},
	}
}

// queried is a variable whose values Prometheus knows.
func queried(name, label, query, regex string) sdk.VariableModel {
	all := []string{"$__all"}
	return sdk.VariableModel{
		Type: sdk.VariableTypeQuery, Name: name, Label: &label, Datasource: datasource(), Regex: &regex,
		Query:   &sdk.StringOrMap{Map: map[string]any{"query": query, "refId": name}},
		Refresh: cog.ToPtr(sdk.VariableRefreshOnTimeRangeChanged), Sort: cog.ToPtr(sdk.VariableSortNumericalAsc),
		Multi: cog.ToPtr(true), IncludeAll: cog.ToPtr(true), AllValue: cog.ToPtr(".*"), Options: []sdk.VariableOption{},
		Current: &sdk.VariableOption{Text: sdk.StringOrArrayOfString{ArrayOfString: []string{"All"}}, Value: sdk.StringOrArrayOfString{ArrayOfString: all}},
	}
}

// clusterVariable offers the clusters of a Prometheus that has several. Where series have no label
// cluster, All is all that it offers.
func clusterVariable() sdk.VariableModel {
	return queried("cluster", "Cluster", `label_values({__name__=~"dcgm_exporter_build_info|DCGM_FI_DEV_GPU_TEMP|DCGM_FI_DEV_GPU_TEMP_CELSIUS", cluster!=""}, cluster)`, "")
}

// nodeVariable shows host names and stands for instances.
func nodeVariable() sdk.VariableModel {
	hosts := either("DCGM_FI_DEV_GPU_TEMP", func(name string) string { return name + "{" + ofCluster + "}" })
	return queried("instance", "Node", "query_result(group by (hostname, instance) ("+hosts+") or on (instance) group by (instance) (dcgm_exporter_build_info{"+ofCluster+"}))",
		`/(?:hostname="(?<text>[^"]+)".*)?instance="(?<value>[^"]+)"/`)
}

// oneNodeVariable is nodeVariable on a dashboard that opens with the first node rather than all.
func oneNodeVariable() sdk.VariableModel {
	v := nodeVariable()
	v.Current = nil
	return v
}

func gpuVariable() sdk.VariableModel {
	return queried("gpu", "GPU", `label_values(dcgm_exporter_entity_up{`+ofNode+`, UUID!=""}, gpu)`, "")
}

func namespaceVariable() sdk.VariableModel {
	return queried("namespace", "Namespace", "query_result(group by (namespace) ("+everyOwner("dcgm_pod_gpu_info", ofNode, "", "")+"))", `/namespace="([^"]+)"/`)
}

func podVariable() sdk.VariableModel {
	query := strings.ReplaceAll(owned("dcgm_pod_gpu_info", ofNode, "", ""), `, exported_pod=~"$pod"`, "")
	query = strings.ReplaceAll(query, `, pod=~"$pod"`, "")
	return queried("pod", "Pod", "query_result(group by (pod) ("+query+"))", `/pod="([^"]+)"/`)
}
