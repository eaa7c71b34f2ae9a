// Package sim is a source without hardware. A node is described by data files. A seeded model simulates it with an
// injected clock, and a scenario adds faults. The same seed, node, start, scenario and time always produce the same
// values, and the values of a board are consistent with each other.
//
// A Source simulates one node. Open returns a Session for the entities of a plan, which the collector reads like a
// session of any other source. The simulation advances when a Session reads it. XIDs are also in the simulated kernel
// log.
//
// The package does not access drivers, files or the network, and starts no goroutines.
package sim
