// Package config turns arguments, environment and the YAML file into one validated Config.
//
// One table (table.go) holds every setting: name, aliases, environment variable, YAML key, default,
// help, state and target. It drives parsing, --help, the generated docs/flags.md and the hash of
// the configuration, so that none of them can differ from another. A flag wins over its variable,
// the variable over the file, the file over the default.
//
// Flags are read by Go's flag package, as the reference's are: one dash or two,
// "--name value" or "--name=value", switches without a value or with "=value". A POSIX parser would
// read -rbmn as four flags.
//
// Parse is pure: it reads files through the function it is given, and nothing changes a Config
// afterwards. No package below app imports this one: app copies what each package needs into that
// package's own options.
package config
