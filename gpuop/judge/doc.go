// Package judge compares a cluster with what its GPU Operator is meant to make of it. Preflight judges an
// installation or upgrade that has not begun: versions against the support matrix, what the operator would compute
// of nodes that differ, what would stand in its way. Verify judges what runs: custom resources, DaemonSets, the
// pods, labels and resources of each node. Prepare judges a change of a node's MIG config before its label is
// written.
//
// A check that Preflight and Verify both ask is one row of the table of checks. Each row that it yields carries the
// evidence for what it says; a cause that nothing was seen of is at most likely.
//
// Judging is pure: it reads a cluster.State, and neither a client nor the clock.
package judge
