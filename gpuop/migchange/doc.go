// Package migchange judges a change of a node's MIG config before the label is written: what would
// block it, and what the node will show afterwards. A change that has begun is judged by package verify.
//
// Prepare reads a cluster.State; it holds no client and does not read the clock.
package migchange
