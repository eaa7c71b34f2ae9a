// Package explain says how a device id, as the kubelet lists it, finds its GPU and its owner, or
// why not.
//
// It reads the exporter's own flags, variables and file, opens the source for one cycle to learn
// what is there, queries the kubelet once, and prints what the pod mapper says of each step. It
// changes nothing.
package explain
