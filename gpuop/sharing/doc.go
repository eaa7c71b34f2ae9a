// Package sharing parses and checks configs of the device plugin, and predicts how they share GPUs and MIG devices by
// time-slicing or MPS.
//
// It knows the keys of these files, which of them have no effect under the GPU Operator, how a node's config is
// selected, and the limits of MPS clients. The package opens no file, contacts no cluster and keeps no state.
package sharing
