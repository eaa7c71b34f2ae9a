// Package kube is the exporter's only door to the Kubernetes API: the pods of one node, the
// ResourceSlices of one node, one ConfigMap, one node's labels.
//
// It requests nothing else, watches nothing beyond the node, and keeps of an object only what the
// exporter uses. Where the API server refuses, the error says which verb on which resource is to be
// granted. It answers from memory: no reader of pods or slices waits for the network.
//
// It imports nothing of the exporter; the application joins it to those who need it. A Client and
// its watches end with the context they were started with.
package kube
