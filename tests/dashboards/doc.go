// Package dashboards tests the dashboards in grafana. The queries of the panels, and the documented queries, run in
// Prometheus' own engine on pages of simulated nodes. Each must return data, and only for the selected node. Units must
// match the catalog, and links must set the variables of the dashboard to which they lead.
package dashboards
