// Package scenarios simulates faults of machines and checks the resulting pages. It covers every example of
// docs/simulator.md.
//
// Nodes are simulated with a fake clock and the exporter's own collector and encoder, but without its server.
package scenarios
