// Package drift compares what an installation of the GPU Operator was meant to be with what it is, in
// the order in which one makes the next: the values files, the Helm release, the custom resources that
// it wrote, the operator's DaemonSets. Each field that differs is a row with its owner: the field
// manager, its operation and its time, as the API server recorded them.
//
// The release is read from its Secret, with Helm's own types; the manifest in it is what the templates
// made of the values, so that nothing is rendered again. A DaemonSet is the operator's work but for the fields
// that another manager owns.
//
// Judging is pure: it reads a cluster.State and neither a client nor the clock.
package drift
