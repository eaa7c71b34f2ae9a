// Package scenarios simulates faults of machines, and checks the resulting pages. It covers every example in
// docs/simulator.md.
//
// The simulated nodes have a fake clock. The collector and encoder are those of the exporter; the server is not used.
package scenarios
