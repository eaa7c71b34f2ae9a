// Package sim is a source without hardware: nodes described as data, played by a seeded model on an
// injected clock, with faults from a script. The same seed, node, start, script and time always
// give the same values, and these hang together as on a real board.
//
// A Source holds one world; Open looks at it through the plan and returns a Session, which the
// collector reads like any other source's. The world moves when a Session reads it, and has a
// kernel whose log has the XIDs.
//
// Never does it touch a driver, a file system or the network, start a goroutine, or serve a value
// that it calls absent.
package sim
