// Package events counts XIDs and clock events of GPUs.
//
// Its Log is a snapshot.Deriver. It returns the number of events per window and in total, by the owner at the time of
// the event, and the last XID of each GPU. The counts outlive sessions, but not the process.
//
// An XID has one source (docs/adr/0022): the kernel log while it is read, otherwise the session's driver. The type
// reports recognizes XIDs that an engine reports again to each session, owners records who had a GPU when, and reasons
// counts how often and how long each clock event reason was set. The counts become series in families.go.
package events
