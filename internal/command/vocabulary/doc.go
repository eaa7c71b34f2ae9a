// Package vocabulary reads what people wrote about metrics and says what becomes of it under the
// other vocabulary.
//
// Files are Grafana dashboards, Prometheus rule files, scrape configurations and the Prometheus
// operator's manifests. parseTree reads JSON and YAML into one tree that knows its lines; walk
// finds the expressions, variables, legends and relabelings in it; a rewriter parses each
// expression with Prometheus' own parser, after holding Grafana's variables, and edits it in place,
// so that the result keeps its unit and the author's layout.
//
// All facts (names, units, factors) come from package counters. The package changes no file and
// queries no server.
package vocabulary
