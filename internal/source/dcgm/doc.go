// Package dcgm is the source that reads GPUs, MIG instances, NVLinks, NVSwitches, Grace CPUs and ConnectX cards through
// NVIDIA's DCGM. The engine is embedded in this process, or a host engine reached over TCP, a Unix socket or vsock.
//
// A Session discovers the entities, watches the plan's fields with small sample limits, and reads the engine's cache in
// one call per kind of entity. It owns its groups, field groups and watches at the engine. Infrequent calls go through
// go-dcgm. Watching and reading use C code (thin.c), because go-dcgm copies 4 KiB for each value and drops result
// codes. See docs/adr/0006-cgo-boundary.md.
//
// A session (session.go) has an inventory of its entities (inventory.go, entities.go), which also finds lost GPUs and
// changes (inspect.go), and a watch set with what the engine samples (watch.go, renew.go). result.go decides which
// errors of the engine end the session.
//
// Blanks, sentinels, status codes and C structures do not leave this package. It does not read live values and does not
// judge samples: it reports the engine's values with the engine's times.
package dcgm
