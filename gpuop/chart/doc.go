// Package chart describes the releases of NVIDIA's gpu-operator Helm chart since v1.7.0: the keys and defaults of the
// values, which of them the templates read, the fields of the custom resources, and the operands.
//
// The facts are embedded text files. Most are generated from the charts and from the operator's source by go generate;
// about.txt and exclusions.txt are written by hand. A Table is immutable.
//
// The package reads no charts, clusters or files.
package chart

//go:generate go run ../../tools/operator
