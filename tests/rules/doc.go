// Package rules holds the alerts and recording rules of deployment/rules against the exporter:
// every metric exists, every alert has a runbook and unit tests, works in both vocabularies, is
// silent over a day of healthy simulated nodes and rings in the scenarios that docs/runbooks.md
// lists.
//
// The rules are evaluated by promtool, the rule engine of Prometheus, on pages that the exporter's
// collector makes of simulated nodes. (The package rules of Prometheus would do so in process, for
// fifty more modules in go.mod.)
//
// "make prometheus" gets promtool where PATH has none. Without it these tests are skipped with a
// reason, and where the variable CI is set they fail.
package rules
