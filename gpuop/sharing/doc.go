// Package sharing reads, checks, writes and predicts the device plugin's configuration files: how
// whole GPUs and MIG devices are shared by time-slicing or by MPS.
//
// It owns the key check of those files (the library's strict mode lets misspelled keys through,
// because it unmarshals by hand), the rules by which the two installation routes choose a config
// for a node and override parts of it, and the arithmetic of MPS limits. The format itself is the
// library's: github.com/NVIDIA/k8s-device-plugin/api/config/v1 decodes every file that passes.
//
// A file goes in, a Config with findings comes out; a Config and the GPUs of a node go in, a
// Prediction of labels, resources and limits comes out. What labels say is package mig's knowledge,
// reading a Node is package node's.
//
// The package opens no file, speaks to no cluster and keeps no state.
package sharing
