// Package exposition writes a gpu.Snapshot as a page in Prometheus' text format 0.0.4, once per
// cycle and never per scrape.
//
// An Encoder belongs to the collector's goroutine. It renders the labels of an entity when they change, copies them and
// appends numbers. A Page is immutable; Pages publishes it to any number of readers, and the garbage collector takes it
// after the last of them: a cycle costs the memory of one page, and of another if it is compressed.
//
// No label of any content can break a page: values are escaped, names made valid, and of two samples with equal labels the
// first is served and the second counted. Nothing here reads a device or knows what a metric means.
package exposition
