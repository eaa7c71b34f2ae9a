// Package finding is the vocabulary in which gpuop speaks about mistakes: a Finding names what is
// wrong, where, why, how to put it right and which source says so; a Report is a list of them.
//
// The linters and predictors make findings, the command line turns a Report into text, JSON, YAML,
// SARIF or JUnit and into an exit code. A Report belongs to its maker and is not safe for
// concurrent use.
//
// The package decides nothing about charts or GPUs, reads no file and never writes anywhere but to
// the io.Writer that it is given.
package finding
