// Package queries checks the PromQL of rules and dashboards against the metrics that a counters file requests. It finds
// expressions that can never have a result, or whose result has a different unit than intended. It does not evaluate
// them.
package queries
