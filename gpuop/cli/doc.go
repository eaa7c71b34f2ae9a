// Package cli is gpuop's command line: one file for each command, which reads the inputs the user
// names, calls the package that knows, and hands an answer to the one place that writes (output.go).
//
// Run is the whole program but for the process: main and the tests call it alike. A command is a
// function from *env, which carries the streams and the common options, to a *cobra.Command; it
// returns an answer's error as it is.
//
// The package holds no facts about charts, GPUs or labels, never opens a network connection, and
// writes nowhere but to the streams and to the file that --out names.
package cli
