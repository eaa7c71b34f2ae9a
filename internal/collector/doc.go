// Package collector runs the one goroutine that owns the driver.
//
// Its Loop opens a Session at a Source, reads it on every tick while the Attributors say who uses the GPUs, lets snapshot
// and its Derivers make a gpu.Snapshot of both, and publishes that. At a start, a reload, a hot-plug, a MIG repartition or
// the loss of an engine it does the same: close this Session, open another.
//
// The Loop owns the Session and the Batch, and calls the driver from one goroutine at a time. It formats nothing and serves
// no request.
package collector
