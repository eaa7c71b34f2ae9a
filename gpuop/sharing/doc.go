// Package sharing reads, checks and predicts from the device plugin's configuration files: how
// whole GPUs and MIG devices are shared by time-slicing or by MPS.
//
// It owns the table of those files' keys, with what has no effect under the GPU Operator, the choice of a node's config
// under the GPU Operator, and the arithmetic of MPS limits. The device plugin's own package api/config/v1 is the oracle of
// its tests. What labels say is package mig's knowledge, reading a Node is package node's.
//
// The package opens no file, speaks to no cluster and keeps no state.
package sharing
