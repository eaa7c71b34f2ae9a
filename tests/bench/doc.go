// Package bench measures whole cycles of the exporter, from the source to the published page, over
// the simulator and over the DCGM test library. Its figures are in docs/performance.md; nothing in
// here fails for being slow.
package bench
