// Package chart knows NVIDIA's gpu-operator Helm chart over its versions: which keys its values have had, from when
// until when and with which default, what reads them, which operand versions a release is made for, which images it
// pulls, and which fields its custom resources have.
//
// The facts are text files in the project's own form (values.txt, templates.txt, operands.txt, about.txt,
// resources.txt), each with its sources at the top, embedded and parsed once. The linter, the values commands, images
// and adopt ask; nobody changes a Table.
//
// The package reads no chart, no cluster and no file, and judges no values: what a key's absence means is the
// linter's business.
package chart
