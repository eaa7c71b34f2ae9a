// Package command holds what the exporter's subcommands share: the process they run in, their exit
// codes, and what a configuration requests.
//
// Each subcommand is a package of its own below this one, a Command whose Run returns the exit
// code. They read the same flags, variables and files as the exporter itself, print for people, and
// change nothing. What needs a source gets it as a function from the
// command that wires the exporter, so that ops never chooses one.
package command
