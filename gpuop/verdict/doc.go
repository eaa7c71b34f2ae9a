// Package verdict is the vocabulary in which gpuop judges a cluster or a node: a Verdict is one row,
// what was looked at, whether it is as intended, since when it is not, and the next step; a Tree
// groups the rows by node.
//
// Package finding speaks about mistakes in a file; a verdict also says what is right, and what could
// not be judged. The command line turns a Tree into text, JSON, SARIF and an exit code.
//
// The package reads nothing and judges nothing.
package verdict
