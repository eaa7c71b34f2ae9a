// Package sharing reads, checks, writes and predicts the device plugin's configuration files: how
// whole GPUs and MIG devices are shared by time-slicing or by MPS.
//
// It owns the check of those files, the rules by which the two installation routes choose a config for
// a node and override parts of it, and the arithmetic of MPS limits. The device plugin's own package
// api/config/v1 is the oracle of its tests: what that refuses is refused here, with its line.
//
// A file goes in, a Config with findings comes out; a Config and the GPUs of a node go in, a
// Prediction of labels, resources and limits comes out. What labels say is package mig's knowledge,
// reading a Node is package node's.
//
// The package opens no file, speaks to no cluster and keeps no state.
package sharing
