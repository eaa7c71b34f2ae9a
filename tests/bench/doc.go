// Package bench measures whole cycles of the exporter, from the source to the published page, with the simulator and
// the DCGM test library. Results are in docs/performance.md. Nothing here fails because it is slow.
package bench
