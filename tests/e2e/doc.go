// Package e2e tests the exporter on a real Kubernetes node. run.sh starts a kubelet, an API server, a scheduler and
// containerd in their own namespaces.
//
// Only NVIDIA's hardware is simulated. A device plugin and a DRA driver offer the devices of a simulated node, and the
// exporter reads the same node. Pods, allocations, the PodResources socket and the kubelet's restarts are real.
//
// The tests have the build tag e2e and need root. `make test` does not run them. They use the same node, so they run
// one after another. Each test deletes the pods that it created.
package e2e
