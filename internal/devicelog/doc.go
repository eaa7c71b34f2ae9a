// Package devicelog writes a line to the log when something happens to a GPU: it is lost or back,
// it came or went, its MIG layout changed, its clocks have been held down by heat or power supply
// for long, or an XID was reported.
//
// It is a snapshot.Deriver without families: it compares each cycle with those before, and writes
// edges alone, never a state that lasts. What it remembers outlives sessions. It never decides what
// is served.
package devicelog
