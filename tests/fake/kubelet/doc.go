// Package kubelet is a fake PodResources server for tests. It serves gRPC on a Unix socket in a temporary folder.
//
// Its script has one reply for each List call: a list, an error, no answer, or a response that stalls or breaks off.
// The last reply is repeated. The server can be stopped, and started again on the same path, like a kubelet that
// restarts. It counts the calls.
//
// Captures returns lists recorded from a real kubelet (v1.36.3), if the shared material has them. Other lists are
// written in Go and have the same form. Only tests import this package.
package kubelet
