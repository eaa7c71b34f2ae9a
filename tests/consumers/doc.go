// Package consumers evaluates the queries of other programs, guides and dashboards with Prometheus' own engine. The
// data are pages of simulated nodes, in which GPUs are assigned to pods in every supported way. The generated tables in
// the docs must match the results.
package consumers
