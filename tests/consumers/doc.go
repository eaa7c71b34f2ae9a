// Package consumers evaluates the queries of other programs, guides and dashboards with Prometheus' own engine. The
// data are pages of simulated nodes that assign GPUs in every way. The generated tables of the docs must match the
// results.
package consumers
