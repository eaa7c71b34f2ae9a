// Package kubelet is a PodResources server for tests: real gRPC on a unix socket in a temporary
// folder, without a kubelet behind it.
//
// It plays a script of answers, one per List: a listing, a refusal, silence, a connection that dies
// in the middle. It can be stopped and started on the same path, as a kubelet that restarts
// replaces its socket. It counts the calls.
//
// The listings are a real kubelet's (v1.36.3) where those recordings lie beside the repository, and
// a few of the same shapes written down here. The package is imported by tests only and knows
// nothing of its clients.
package kubelet
