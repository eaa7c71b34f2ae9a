// Package node reads what a Kubernetes Node says about its GPUs, from what kubectl prints: JSON or
// YAML of "get node", or the text of "describe node", also where copying has lost its indentation.
//
// The predictors need the GPUs that a node has now; Parse and GPUs give them, from labels that GPU
// Feature Discovery wrote. Check reports a node whose labels and resources contradict each other.
//
// The package contacts no cluster, keeps no state, and knows nothing of configurations.
package node
