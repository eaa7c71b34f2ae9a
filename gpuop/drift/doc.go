// Package drift compares an installed GPU Operator with what was intended: the values files with the Helm release, and
// the release with the ClusterPolicy. A difference in the ClusterPolicy names the owner of the field, if the API server
// recorded it: the field manager, the operation and the time.
//
// The release is read from Helm's Secret. Its manifest is already rendered, so no templates are rendered. The package
// reads a cluster.State; it uses neither a client nor the clock.
package drift
