// Package dcgm is the source that reads GPUs, MIG instances, NVLinks, NVSwitches, Grace CPUs and
// ConnectX cards through NVIDIA's DCGM: an engine embedded in this process, or a host engine
// reached over TCP, a unix socket or vsock.
//
// A Session discovers the entities, watches the plan's fields with small sample limits, and reads
// the engine's cache in one call per kind of entities. It owns its groups, field groups and watches
// at the engine. Rare calls go through go-dcgm, watching and reading through C of our own (thin.c):
// go-dcgm copies 4 KiB for each value and drops result codes. See docs/adr/0006-cgo-boundary.md.
//
// Blanks, sentinels, statuses and C structures end here. The package never reads live values and
// never decides what a sample is worth: it reports the engine's values with the engine's times.
package dcgm
