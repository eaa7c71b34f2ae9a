// Package gpu has the words that all other packages share: entity, device, topology, field, value, plan, batch, owners
// and snapshot, and the typed errors. It imports nothing of this module, calls no driver and reads no file.
//
// A source fills a Batch with samples for the rows of its Topology and the fields of a Plan. The collector makes a
// Snapshot of it, and exposition writes that as a page.
//
// The zero Value means "no value". Sentinels, blank codes and C structures end in the package that talks to the engine.
package gpu
