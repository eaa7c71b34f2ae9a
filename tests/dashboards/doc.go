// Package dashboards holds what is written about the metrics against what is
// served: the dashboards in grafana/ and the pages in docs/.
//
// Its tests run the exporter in process over a simulated node with faults, let
// a real Prometheus scrape it on loopback, and ask that Prometheus every query
// of every panel, with honor_labels on and off. They check the dashboards
// against Grafana's schema and for panels that overlap, and every metric and
// label that is written anywhere against the catalogue and the served page.
//
// prometheus.sh gets a Prometheus where PATH has none. Without one the queries
// are skipped with a reason, and where the variable CI is set they fail.
package dashboards
