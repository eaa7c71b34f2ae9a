// Package report defines the findings that all parts of gpuop produce, and writes them.
//
// A Row is one finding: its subject, state, reason, evidence and fix. A Report is a list of rows, either about files or
// about a cluster or node. It can be written as text, JSON or SARIF. A Report is not safe for concurrent use.
package check
