// Package app wires the exporter together and is the only place that knows every package: it turns
// the configuration into each package's own options, and runs the collector's loop, the server and
// the reloader until one of them fails or the context ends.
//
// Read app.go from top to bottom for the flow: configuration, counters, plan, source, loop, page,
// server. It decides nothing about values, labels or drivers; the package that does is named in the
// wiring.
package app
