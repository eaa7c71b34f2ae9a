// Package lint judges what a platform engineer is about to apply: values of the gpu-operator chart,
// a pasted helm or kubectl command, the operator's custom resources, device plugin and mig-parted
// configs, ConfigMaps around them, pod manifests and node dumps. It finds out by itself which of
// these a text is.
//
// Text goes in, findings with lines come out, and for a command the corrected command. Package input
// reads scripts, Terraform, templates and the files of other tools; package model has the settings of
// a run with their places; what the chart has at a version comes from package chart, the two config
// formats from packages sharing and mig; command line and exit codes belong to package cli.
//
// A run keeps no state and shares nothing. The package opens no file itself (it is given a function
// that reads those a command names), never contacts a cluster, and no input, however broken, makes it
// panic.
package lint
