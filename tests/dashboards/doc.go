// Package dashboards holds the dashboards in grafana/ against what is served.
//
// Each query of each panel, and the questions of docs/attribution.md, run in Prometheus' own query engine
// over what simulated nodes served: it finds something, and of the chosen node alone. Besides, units
// are those of the catalog, and panels and links are whole.
package dashboards
