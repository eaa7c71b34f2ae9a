// Package cluster reads a Kubernetes cluster into a State, from a live API server
// or from the folder that the operator's must-gather script leaves, and carries the one write that
// gpuop makes where --apply is given: a node's label.
//
// Each kind is listed at most once, in pages, and trimmed while it is read, so that
// 5,000 nodes fit into a small process. What may not be read, is absent, or is missing in the folder
// is a row of State.Missing, never an empty list that looks like nothing is there.
//
// It is gpuop's one door to client-go. It judges nothing.
package cluster
