// Package snapshot makes a page's data of one reading.
//
// A Builder puts each sample of a gpu.Batch into its cell if it is fresh and plausible, works out
// which entity is up and which requested field has no value and why, and fills the columns of a
// gpu.Snapshot. Derivers add the families that no column shows: Facts here, those of events and
// accounting elsewhere.
//
// A Builder is made for one session. Its snapshots are immutable: each has memory of its own, which
// the garbage collector takes. The package calls no driver and knows no clock.
package snapshot
