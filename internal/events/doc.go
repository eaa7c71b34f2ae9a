// Package events counts what happens to GPUs: XIDs and clock events.
//
// Its Log is a snapshot.Deriver. Of every reading it takes the samples that are events, each once,
// whatever session, reload, restart or second witness reports them, and makes the families of the
// windows, of the totals by the owner of the time of the event, and the gauge of the last XID. What
// it knows outlives sessions, and with a state file the process.
//
// Below it, kernellog is the second witness of XIDs and statefile the file.
package events
