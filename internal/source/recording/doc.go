// Package recording is a machine in a file: what its sources showed for a while, written, read and
// replayed.
//
// A Recording grows by the Batches of Reads, is written as lines of JSON, and comes back by Parse,
// which says file and line of what is wrong. A Source plays it: entities, values, faults and owners
// as they were, over and over, with nothing modeled.
//
// The package touches no driver, file system or network, and starts no goroutine.
package recording
