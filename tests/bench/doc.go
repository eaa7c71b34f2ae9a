// Package bench measures whole cycles of the exporter, from the source to the published page. The sources are the
// simulator and the DCGM test library. docs/performance.md has the results. A slow result fails no test.
package bench
