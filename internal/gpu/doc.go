// Package gpu is the vocabulary that every other package shares: what an entity, a device, a field,
// a value and a sample are, which errors the edge may report, and the shapes in which they travel.
//
// Data moves in one direction only. A source fills a Batch with samples for the rows of its
// Topology and the fields of a Plan; the collector turns it into a Snapshot; exposition writes the
// Snapshot as a page. Nothing in here calls a driver, a kubelet or reads a file, and the package
// imports nothing of this module.
//
// Absence is absence: the zero Value means "no value", and there is no other way to say it.
// Sentinels, blank codes and C structures end in the package that talks to the engine.
package gpu
