// Package check defines the checks of gpuop and their findings, and writes reports.
//
// A Check is one thing that gpuop looks for, with a stable ID. A Finding is its result for a subject: severity, reason,
// evidence and fix. A Report is a list of findings, either about files or about a cluster or node. It can be written as
// text (text.go), JSON or SARIF (render.go). A Report is not safe for concurrent use.
//
// Before a report is written, findings with the same cause are merged (cause.go), findings that the user ignores are
// removed (ignore.go), and secrets are masked (mask.go).
package check
