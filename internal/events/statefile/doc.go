// Package statefile keeps what is to outlive the exporter in one small file (--state-file): the
// counts of events.
//
// Open reads the file and puts aside one that cannot be used; a Writer writes it on a goroutine of
// its own, whole or not at all, so that a slow or full disk never delays a cycle.
//
// The package does not know what is in the file: a Form reads and writes that.
package statefile
