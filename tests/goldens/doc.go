// Package goldens compares pages with the golden ones in testdata/pages, which are meant to be read. A page may only
// change on purpose.
//
// The sources are simulated nodes with a fake clock, and the test libraries of DCGM and NVML. After an intended change,
// run
//
//	go test ./tests/goldens -update
package goldens
