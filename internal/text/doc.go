// Package text handles text that people write: spelling suggestions, YAML with line numbers in errors, names that
// Prometheus accepts, and UUIDs.
package text
