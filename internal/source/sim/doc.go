// Package sim is a source without hardware. Nodes are data; a seeded model plays them on an injected
// clock, with faults from a script. The same seed, node, start, script and time always give the same
// values, and the values of a board agree with each other.
//
// A Source holds one world. Open returns a Session for the plan's part of it, and the collector reads
// the Session like any other source's. The world moves when a Session reads it. Its kernel's log has
// the XIDs.
//
// The package touches no driver, file system or network, and starts no goroutine.
package sim
