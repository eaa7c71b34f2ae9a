// Package mig predicts, without a GPU, which Multi-Instance GPU (MIG) partitions a board can hold.
//
// It has the geometry of each board, a search that places instances, and a parser of mig-parted files. It
// also predicts a node's labels and resources. Package sharing adds time-slicing and MPS to the prediction.
//
// The package accesses no device, network or file, and keeps no state.
package mig
