// Package snapshot makes the content of a page of one reading.
//
// A Builder puts each sample of a gpu.Batch into its cell if it is fresh and plausible, decides which entity is up and why a
// requested field has no value, and fills the columns of a gpu.Snapshot. Derivers add the other families: Facts here, those
// of events and accounting elsewhere.
//
// A Builder is made for one session. Its snapshots are immutable. The package calls no driver and knows no clock.
package snapshot
