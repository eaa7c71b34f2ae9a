// Package judge checks a cluster that runs the GPU Operator or is about to.
//
// Preflight checks whether an installation or upgrade would work. Verify checks an installation: custom resources,
// DaemonSets, and the pods, labels and resources of each node. Prepare checks a change of a node's MIG config before
// its label is set.
//
// Every finding has evidence; a cause without evidence is at most likely. The package reads a cluster.State. It uses
// neither a client nor the clock.
package judge
