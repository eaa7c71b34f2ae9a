// Package verify judges whether a cluster's GPU Operator does what it is meant to: the custom
// resources, the DaemonSet of each operand, the operand's pod on each node, the states of a driver
// upgrade and of a MIG change, and what each node shows against what its configuration predicts.
//
// Judge is pure: it reads a cluster.State and takes the time from it, so that a live cluster, a
// must-gather folder and a test are judged by the same code. Its rows are in the order in which the
// operands depend on each other, so that the first row that is not as intended is the one to mend.
//
// Smoke runs pods that use a GPU, through the few functions of Pods, and deletes them whatever
// happens.
//
// What a node must show is predicted by packages mig and sharing; what a Node says about its GPUs is
// read by package node. The package keeps no state and contacts nothing.
package verify
