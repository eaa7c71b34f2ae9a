// Package attribution asks Prometheus' own query engine, over days that the
// simulator played, what a user must be able to ask in one line about who uses
// the GPUs.
package attribution
