// Package input reads what people apply the GPU Operator with: shell scripts, Terraform files, templates and the files of
// other tools that carry values of charts. A part of a text that is not known here stays inside its word as it is written.
//
// The package judges no value, runs nothing and opens no file. Its bounds hold for any input: a text that is too large or
// too deep is not read, with the reason.
package input
