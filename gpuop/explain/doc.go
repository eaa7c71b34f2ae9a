// Package explain explains words that users meet while they install the GPU Operator: labels, states, keys, resources,
// events and components. For unknown words it suggests similar ones.
//
// The glossary is words.txt. Entries about GPU models, keys of the chart and gpuop's findings come from the packages
// that define them.
package explain
