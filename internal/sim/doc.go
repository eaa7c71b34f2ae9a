// Package sim is a source without hardware: nodes described as data, played
// by a seeded model on an injected clock, with faults from a script.
//
// It is the demo, the test bed, the benchmark's rig and the stage for the
// dashboards. A Source holds one world; Open looks at it through the plan and
// returns a Session, which the collector reads like any other source's.
// The same seed, node, start, script and time always give the same values.
//
// The world belongs to the Source and moves when a Session reads it. Values
// hang together as on a real board: power follows activity up to its limit,
// clocks fall under the cap, energy is the exact integral of power,
// temperature follows power with a lag, memory follows the pods.
//
// A Recording is what a real machine showed for a while, and a Replay the source
// that plays it: as it was, with nothing modelled.
//
// The package never touches a driver, a file system or the network, starts no
// goroutine, and never serves a value that it calls absent.
package sim
