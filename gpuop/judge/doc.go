// Package judge checks a cluster before and after the installation of the GPU Operator.
//
// Preflight checks whether an installation or upgrade would work. Verify checks an installation: custom resources,
// DaemonSets, and the pods, labels and resources of each node. Prepare checks a change of a node's MIG config before
// its label is set.
//
// Every finding has evidence. A cause that the evidence does not prove is called probable. The package reads a
// cluster.State, and uses neither a client nor the clock.
package judge
