// Package events counts what happens to GPUs: XIDs and clock events.
//
// Its Log is a snapshot.Deriver. It makes the families of the windows, of the totals by the owner
// of the time of the event, and the gauge of the last XID with its labels. What it knows outlives
// sessions.
//
// A ledger counts each XID once, whichever witness reports it (docs/adr/0011):
//   - reports: what one witness says in several sessions is a union of multisets of (code, ID). No
//     time is compared.
//   - pairs: what two witnesses say is paired by code and time, first in, first out.
//   - clock: what is remembered is dated by a clock that is never set, and a date is believed as far
//     as it can be.
//   - owners: who had the GPU when.
//
// Clock event reasons are a state that is sampled: reasons counts their edges and seconds.
//
// Below it, kernellog is the second witness of XIDs.
package events
