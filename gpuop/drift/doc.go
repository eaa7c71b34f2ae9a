// Package drift compares an installed GPU Operator with what was intended: the values files with the Helm release, and
// the release with the ClusterPolicy. Each difference names the owner of the field: its field manager, operation and
// time, as the API server recorded them.
//
// The release is read from Helm's Secret. Its manifest is already rendered, so no templates are rendered. The package
// reads a cluster.State; it uses neither a client nor the clock.
package drift
