// Package events counts what happens to GPUs: XIDs and clock events.
//
// Its Log is a snapshot.Deriver. It makes the families of the windows and of the totals by the
// owner of the time of the event, and the gauge of the last XID. What it knows outlives sessions,
// not the process: counters begin at 0, as everywhere in Prometheus.
//
// An XID has one witness (docs/adr/0022): the kernel's log while that is read, else the source of
// the session. The files of the package follow that:
//   - xids: counts each XID of its witness once.
//   - reports: knows what an engine has reported, since it repeats its history to each session.
//   - owners: knows who had the GPU when.
//   - reasons: counts edges and seconds of clock event reasons, which are a sampled state.
//
// Below it, kernellog follows the kernel's log.
package events
