// Package exposition writes a gpu.Snapshot as a page in Prometheus' text format 0.0.4, once per
// cycle and never per scrape.
//
// An Encoder belongs to the collector's goroutine. It renders the labels of an entity once and
// again only when the topology, an owner or the value of a label-typed counter changes; a cycle
// then copies label blocks and appends numbers, and in steady state allocates nothing. The page it
// returns is immutable and counted by reference: Pages hands it to any number of readers and its
// memory is used again only after the last of them has released it.
//
// Nothing here reads a device, knows who requests a page or formats a number by reflection, and no
// label of any content can break a page: values are escaped, names made valid, and of two samples
// with equal labels the first is served and the second counted.
package exposition
