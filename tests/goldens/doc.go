// Package goldens compares a few pages, which are there to read, with what they were: testdata/pages. A page that changes
// must be meant to.
//
// The sources are the simulator with its nodes, on the clock of a bubble, and the test libraries of DCGM and NVML. After a
// change that is meant:
//
//	go test ./tests/goldens -update
package goldens
