// Package gpu defines the types that all packages share: entities, devices and topologies, fields and values, the
// plan of a session, the request and the batch of a read, owners, snapshots, and the typed errors. It imports no other
// package of this module.
//
// A source fills a Batch with samples. Each sample names a row of the session's Topology and a field of its Plan.
// The collector turns the Batch into a Snapshot, and package exposition renders that as a page.
//
// The zero Value means "no value". Only the packages that talk to a driver know its sentinels and blank codes.
package gpu
