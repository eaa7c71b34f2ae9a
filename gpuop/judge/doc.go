// Package judge compares a cluster with the intentions of its GPU Operator. Preflight judges an installation or upgrade
// before it begins: versions against the support matrix, nodes that differ, obstacles. Verify judges the installation:
// custom resources, DaemonSets, the pods, labels and resources of each node. Prepare judges a change of a node's MIG
// config before its label is written.
//
// A check that Preflight and Verify both ask is one row of the table of checks. Each row that it yields carries the
// evidence for its claim; a cause without evidence is at most likely.
//
// Judging is pure: it reads a cluster.State, and neither a client nor the clock.
package judge
