// Package completion writes the scripts that complete the exporter's command line in bash, zsh and
// fish, from the list of subcommands and the table of settings. The subcommand prints them, and the
// packages install them.
package completion
