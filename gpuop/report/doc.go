// Package report is the vocabulary of gpuop's findings: a Row names a subject, its state, the evidence, the next step
// and the source of the fact. A Report is a list of
// rows, about the lines of files or about the nodes of a cluster.
//
// The linters, predictors and judges make rows; the command line writes a Report as text, JSON or SARIF
// and makes an exit code of it. A Report belongs to its maker and is not safe for concurrent use.
//
// The package decides nothing about charts, GPUs or clusters, reads no file and never writes anywhere
// but to the io.Writer that it is given.
package report
