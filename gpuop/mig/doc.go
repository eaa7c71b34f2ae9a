// Package mig answers, without a GPU, what Multi-Instance GPU (MIG) partitioning a board can hold.
//
// It owns four things: the geometry table (which instance profiles each board offers, where in the
// board's memory slices an instance may start, and how well each row is attested), the search that
// places a wanted set of instances, the reader and writer of the mig-parted configuration file that
// the GPU Operator's MIG manager applies, and the prediction of node labels and allocatable
// resources under the strategies none, single and mixed.
//
// Time-slicing and MPS belong to gpuop/sharing, which hands its replication to Predict here. The package never touches a
// device, a driver, the network or the file system, and keeps no state.
package mig
