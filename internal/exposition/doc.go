// Package exposition renders a gpu.Snapshot as a page in the Prometheus text format 0.0.4. It does so once per
// collection cycle, so a scrape only writes bytes.
//
// An Encoder belongs to the goroutine of the collector. It renders the labels of an entity only when they change, and
// otherwise copies them and appends numbers. Pages hands the current Page to any number of readers. A Page does not
// change until every reader has released it; then the Encoder may write a later page over it.
//
// No label can break a page: values are escaped, names are made valid, and if two samples have equal labels, the second
// one is dropped and counted. The package reads no device. It computes only the families about the collection's health.
package exposition
