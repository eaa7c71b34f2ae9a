// Package collector runs the collection cycle and owns the driver.
//
// Its Loop opens a Session of a Source and reads it on every tick, while the Attributors find the owners of the GPUs.
// It builds a gpu.Snapshot from both and publishes it. After a reload, a hotplug, a MIG repartition or the loss of an
// engine, it closes the Session and opens another.
//
// The Loop calls the driver from one goroutine at a time. It does not render pages or serve requests.
package collector
