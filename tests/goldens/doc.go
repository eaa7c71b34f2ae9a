// Package goldens compares a few pages, which are there to read, with what they were: testdata/pages. A page that changes
// must be meant to.
//
// The sources are the simulator with its nodes, on the clock of a bubble, and the test libraries of DCGM and NVML. After a
// change that is meant:
//
//	go test ./tests/goldens -update
//
// On request (-dump) the pages of the cross product of nodes, files, vocabularies, owners and label flags are written, so
// that a change to the code can be judged by all of them:
//
//	make golden-diff CASE=sim-t4/default/classic/pods/plain
package goldens
