// Package cli implements the command line of gpuop.
//
// Each command has a file, with its subcommands. help.txt has the help of all commands. A command reads the inputs that
// the user names, calls the package that does the work, and passes the result to env.answer. Only output.go writes
// results.
//
// Run is the whole program, so that tests can call it as main does. Facts about charts and GPUs are in other packages.
// This package opens no network connection of its own, and writes only to its streams and to the file named by --out.
package cli
