// Package consumers evaluates the queries of other programs, of guides and of dashboards in Prometheus' own engine,
// over pages of simulated nodes that hand out GPUs in every way, and holds the tables of docs/consumers.md to the
// answers.
package consumers
