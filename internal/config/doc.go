// Package config turns arguments, environment and the YAML file into one validated Config.
//
// One table (table.go) declares every setting: its flag, environment variable, YAML key, default and help. Parsing,
// --help, docs/flags.md and the configuration hash all derive from it. Flags override variables, variables override
// the file, and the file overrides defaults.
//
// Go's flag package parses the command line, as it does in NVIDIA's dcgm-exporter: a POSIX parser would read -rbmn as
// four flags.
//
// A Config is immutable once Parse has returned it. Only package app and above import this package. App copies what
// another package needs into the options of that package.
package config
