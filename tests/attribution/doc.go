// Package attribution runs in Prometheus' own query engine, over days that the simulator played,
// the queries of one line that show who uses the GPUs.
package attribution
