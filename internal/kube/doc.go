// Package kube is the exporter's client of the Kubernetes API.
//
// It reads the pods and ResourceSlices of one node, claims, one ConfigMap and one node's labels, and nothing else. It
// keeps only the parts of objects that the exporter uses. Answers come from memory, so readers never wait for the
// network. If the API server rejects a request, the error names the missing verb and resource.
//
// A Client and its watches end with the context that they were started with.
package kube
