// Package fields is a strict reader of small YAML files that keeps the line of every value.
//
// It reports keys that are unknown, duplicate or of the wrong type, and suggests the nearest known key. It also
// recognizes mistakes from copying, such as the "..." that articles use for "and so on". The package knows no file
// format. A Reader is for one file and one goroutine.
package fields
