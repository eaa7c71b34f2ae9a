// Package dcgm is the source that reads GPUs, MIG instances, NVLinks, NVSwitches, Grace CPUs and
// ConnectX cards through NVIDIA's DCGM: an engine embedded in this process, or a host engine
// reached over TCP, a unix socket or vsock.
//
// A Session discovers the entities, watches the plan's fields with small sample limits, and reads
// the engine's cache in one call per group of fields. It owns its groups, field groups and watches
// at the engine, and its hold on the connection; Close gives all of them back. The calls go through
// go-dcgm for everything that is rare, and through a few C lines of our own (thin.c) for watching
// and reading, where go-dcgm would copy 4 KiB for each value and drop the result codes:
// docs/adr/0006-cgo-boundary.md.
//
// Blanks, sentinels, statuses and C structures end here. The package never reads live values, never
// retries, and never decides what a sample is worth: it reports what the engine said, with the time
// that it said it of.
package dcgm
