// Package dashboards tests the dashboards in grafana. The queries of the panels, and the documented queries, run in
// Prometheus' own engine on pages of simulated nodes. Each must return data, and only for the selected node. Units must
// match the catalog, and links and panels must be complete.
package dashboards
