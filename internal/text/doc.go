// Package text handles text that people write: spelling suggestions, strict YAML with line numbers in errors, and names
// that Prometheus accepts, and UUIDs.
package text
