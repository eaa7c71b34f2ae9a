// Package schema compares YAML with the fields of the GPU Operator's custom resources at a release, as the API server does:
// types, values, required fields, and fields that a release does not have. It is the one structural validator of gpuop.
//
// The fields are package chart's; the package knows no rule about what values mean, and opens no file.
package schema
