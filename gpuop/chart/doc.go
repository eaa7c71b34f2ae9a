// Package chart knows NVIDIA's gpu-operator Helm chart over its releases: which keys its values
// have, from when until when and with which defaults, which of them its templates read, and which
// fields its custom resources have; and which operands the operator of each release makes of them.
//
// The facts are text files. releases.txt, values.txt, reads.txt and fields.txt are
// generated from the charts themselves by go generate, with the reader of package release, and
// operands.txt from the operator's source; about.txt and exclusions.txt hold what neither says, with a
// source. All are embedded and parsed once. The linter, the values commands, images,
// verify and drift read it; none changes a Table.
//
// The package reads no chart, no cluster and no file, and judges no values: what a key's absence
// means is the linter's business.
package chart

//go:generate go run ../../tools/operator
