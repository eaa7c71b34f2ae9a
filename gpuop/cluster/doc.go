// Package cluster reads the state of a Kubernetes cluster from a live API server or from a gathered folder. It can also
// set a node label, for --apply.
//
// Each kind is listed at most once, in pages, and trimmed while it is read, so that 5,000 nodes fit into little memory.
// Kinds that could not be read are in State.Missing, so that they are not mistaken for empty lists.
//
// It is the only package of gpuop that uses client-go.
package cluster
