// Package snapshot turns a reading into the data of a page.
//
// A Builder stores each sample of a gpu.Batch in its cell if it is fresh and plausible. It decides which entities are
// up and why a requested field has no value, and fills the columns of a gpu.Snapshot. Derivers add the other families:
// Facts is in this package; events, accounting and verdict have their own.
//
// A Builder belongs to one session. Its next snapshot reuses the memory of the latest. The package calls no driver and
// reads no clock.
package snapshot
