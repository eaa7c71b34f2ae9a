// Package node reads the GPUs of a Kubernetes Node from the output of kubectl: JSON or YAML of get node, or the text of
// describe node. The text may have lost its indentation.
//
// GPUs returns the GPUs according to the labels of GPU Feature Discovery. Check reports labels and resources that
// contradict each other.
package node
