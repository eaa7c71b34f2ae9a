// Package events counts XIDs and clock events of GPUs.
//
// Its Log is a snapshot.Deriver. It makes the families of the windows and of the totals by the owner at the time of the
// event, and the gauge of the last XID. Its counts outlive sessions, not the process.
//
// An XID has one witness (docs/adr/0022): the kernel's log while that is read, else the source of the session. xids counts
// each XID of its witness once; reports knows the reports of an engine, which repeats its history to each session; owners
// knows who had the GPU when; reasons counts edges and seconds of clock event reasons, which are a sampled state.
package events
