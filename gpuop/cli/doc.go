// Package cli implements the command line of gpuop.
//
// Each file has one command. A command reads the inputs that the user names, calls the package that does the work, and
// returns an answer. Only output.go writes answers.
//
// Run is the whole program except for the process itself, so that tests call it as main does. The package has no
// knowledge of charts or GPUs, opens no network connection of its own, and writes only to its streams and to the file
// named by --out.
package cli
