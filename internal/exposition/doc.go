// Package exposition writes a gpu.Snapshot as a page in Prometheus' text format 0.0.4, once per
// cycle and never per scrape.
//
// An Encoder belongs to the collector's goroutine. It renders the labels of each entity once per
// page, and then copies label blocks and appends numbers. The page that it returns is immutable;
// Pages publishes it to any number of readers, and the garbage collector takes it when the last of
// them is done: a cycle costs the memory of one page, and of another if it is compressed.
//
// Nothing here reads a device, knows who requests a page, what a metric means or formats a number by
// reflection, and no label of any content can break a page: values are escaped, names made valid, and
// of two samples with equal labels the first is served and the second counted.
package exposition
