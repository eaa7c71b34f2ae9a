// Package e2e tests the exporter on a real Kubernetes node: a kubelet, an API server, a scheduler
// and containerd, started for the purpose by run.sh in namespaces of their own.
//
// The tests play the parts that need NVIDIA's hardware: a device plugin and a DRA driver that offer
// the devices of a simulated node, and the exporter that reads the same node. Pods, allocations,
// the PodResources socket and the kubelet's restarts are real.
//
// They are behind the build tag e2e and need root; `make test` neither builds nor needs them. The
// node is one for all: the tests run one after another, and each removes its pods.
package e2e
