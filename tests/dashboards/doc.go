// Package dashboards holds what is written about the metrics against what is served: the dashboards
// in grafana/ and the pages in docs/.
//
// Each query of each panel, and the questions of docs/attribution.md, run in Prometheus' own query engine
// over what simulated nodes served: it finds something, and of the chosen node alone. Besides, units
// are those of the catalog, panels and links are whole, and every metric and label that is written
// anywhere is in the catalog and on a served page.
package dashboards
