// Package statefile keeps the event counters of the exporter across a restart, in
// one small file that the user asks for (--state-file).
//
// A State is what the collector's ledger knows: XIDs and clock events by GPU,
// and how far the kernel's log was read. Decode and Encode are its JSON, with a
// version; Open reads the file and puts aside one that it cannot use; a Keeper
// writes it from a goroutine of its own, whole or not at all, so that a slow or
// full disk never delays a cycle.
//
// The package knows nothing of devices, sessions or series, and never decides
// what counts: the collector owns the figures.
package statefile
