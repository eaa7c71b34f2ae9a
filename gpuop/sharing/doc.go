// Package sharing parses and checks configs of the device plugin, and predicts how they share GPUs and MIG devices by
// time-slicing or MPS.
//
// Parse reports misspelled keys, and keys that have no effect under the GPU Operator. Choose selects a node's config.
// Predict calculates resources, labels and the limits of MPS clients. The package opens no file, contacts no cluster
// and keeps no state.
package sharing
