// Package collector runs the one goroutine that owns the driver.
//
// Its Loop opens a Session at a Source, reads it on every tick while the Attributors say who uses
// what, lets snapshot and its Derivers make a gpu.Snapshot of it, and hands that to a publisher.
// Start, reload, hot-plug, MIG repartition and a lost engine are all the same thing to it: close
// this Session, open another.
//
// The Loop owns the Session, the Batch and the Snapshot. It never formats anything, never serves a
// request and never calls the driver from two goroutines.
package collector
