// Package dashboards holds what is written about the metrics against what is served: the dashboards
// in grafana/ and the pages in docs/.
//
// TestDashboardsOverHours plays a fleet of simulated nodes with troubles for two hours on the clock
// of a bubble, hands what was scraped to a real Prometheus, and runs there every query of every
// panel: each answers, each figure and table shows what the nodes served (the truth is computed
// from their pages in Go, and from their descriptions), legends distinguish series, annotations
// mark events once, and the vocabularies agree. Other tests run whole exporters in
// process, with honor_labels on and off, and NVIDIA's own dashboard.
//
// Without a play: Grafana's schema, panels that overlap, units against the catalog, links, and
// every metric and label that is written anywhere against the catalog and the served page.
//
// prometheus.sh gets a Prometheus where PATH has none. Without one the queries are skipped with a
// reason, and where the variable CI is set they fail.
package dashboards
