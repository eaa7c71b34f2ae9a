// Package cluster reads the state of a Kubernetes cluster from a live API server or from a folder of gathered objects.
// It can also set a node label, for --apply.
//
// Each kind is listed at most once, in pages. Only the operator's CRDs are read again, for their schemas. Kinds that
// could not be read are in State.Missing, which distinguishes them from empty lists.
//
// Only this package of gpuop uses client-go.
package cluster
