// Package bench measures whole cycles of the exporter, from the source to the published page. The sources are the
// simulator and the DCGM test library. docs/performance.md has the results. No test fails because it is slow, but
// TestSteadyMemory fails if a cycle uses too much memory.
package bench
