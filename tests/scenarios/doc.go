// Package scenarios plays what happens to machines, and looks at the page that comes of it: every
// example of docs/simulator.md.
//
// Simulated nodes are played on the clock of a bubble, with the collector and the encoder of the
// exporter and without its server.
package scenarios
