// Package drift compares an installation of the GPU Operator with its intention, in the order in which one step makes
// the next: the values files, the Helm release, the ClusterPolicy. Each field that differs is a row with its owner: the
// field manager, its operation and its time, as the API server recorded them.
//
// The release is read from its Secret, with Helm's own types; the manifest in it is the templates' result, so that
// nothing is rendered again.
//
// Judging is pure: it reads a cluster.State and neither a client nor the clock.
package drift
