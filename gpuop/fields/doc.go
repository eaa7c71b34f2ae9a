// Package fields reads small configuration files strictly and keeps the line of everything it
// reads.
//
// The readers of the mig-parted file and of the device-plugin file stand on it: it parses the YAML,
// explains the mistakes that copying from an article makes (the trailing "..." that stands for "and
// so on"), and hands out a mapping's fields by name while it collects a finding for each key that
// is unknown, twice there, or of the wrong type, with the nearest known key.
//
// A Reader belongs to one file and one goroutine. The package knows no file format by name, decides
// nothing about meaning, and never opens a file.
package fields
