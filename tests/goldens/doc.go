// Package goldens compares every page of a large set of cases with what it was: a page that changes
// must be meant to.
//
// A case is a source and its node, a counters file, a vocabulary, what says who uses the GPUs, and
// the flags that change labels. The sources are the simulator with all of its nodes, on the clock
// of a bubble, and the test libraries of DCGM and NVML. A case is a line of
// testdata/<source>-<node>.golden with its families, its series and the hash of the page; below
// these lines a table has a short hash for each family and session, so that a difference names the
// families. testdata/headers.golden has the type and the help text of every family as text, which
// the hashes leave out. testdata/pages has a few small pages to read.
//
// The flags that change labels alone are played by encoders over one session, as app does:
// TestFlagsAreTheOnesOfApp compares such pages with those of app.Page. The cross product of nodes,
// files, vocabularies and these flags is whole for no owners, for the simulated pods and for
// virtual GPUs. What comes of the kubelet, of jobs and of faults is played with one or two of the
// six pairs of file and vocabulary. Not played are containers without Kubernetes.
//
// Recordings of every version of their format are played too, over two rounds.
//
// Nothing on these pages depends on the clock but the accounts over the test libraries, which run
// in real time: see masked.
//
// After a change that is meant:
//
//	go test ./tests/goldens -update
//
// To see what a change does to pages, from the branch point or another BASE:
//
//	make golden-diff CASE=sim-t4/default/classic/pods/plain
package goldens
