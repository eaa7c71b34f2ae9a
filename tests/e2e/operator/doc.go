// Package operator tests gpuop's cluster commands with a real API server. The tests start etcd, kube-apiserver, the
// DaemonSet controller and the scheduler on loopback, and install NVIDIA's CustomResourceDefinitions.
//
// Each file in the folder states describes a cluster: its nodes, the operator's objects, and mistakes of a person. The
// test creates these objects. The controller creates the pods of DaemonSets, the scheduler places them, and the test
// sets their status as a kubelet would. No kubelet and no GPU is needed. Each state lists the findings that gpuop must
// report. The lists were written by hand, from NVIDIA's documentation and code and from articles about such clusters.
//
// The tests have the build tag e2e, and do not need root. `make states` runs them.
package operator
