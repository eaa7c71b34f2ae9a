// Package operator tests gpuop's commands for a cluster against a real API server: etcd,
// kube-apiserver, the controller of DaemonSets and the scheduler, started for the purpose on
// loopback, with NVIDIA's own CustomResourceDefinitions.
//
// A file in the folder states describes a cluster: nodes, what the operator has made, and what a
// person has got wrong. The rig writes it, the controller makes the pods of its DaemonSets, the
// scheduler places them, and the rig says of each what a kubelet would. No kubelet runs and no GPU
// is needed. Each state names the verdicts that it must yield; they are written by hand, from
// NVIDIA's documentation and code and from the articles that describe such clusters.
//
// The tests are behind the build tag e2e and need no root; tests/e2e/run.sh runs them with the
// others.
package operator
