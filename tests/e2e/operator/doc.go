// Package operator tests gpuop's cluster commands against a real API server. It starts etcd, kube-apiserver, the
// DaemonSet controller and the scheduler on loopback, and installs NVIDIA's CustomResourceDefinitions.
//
// A file in the folder states describes a cluster: its nodes, the objects that the operator created, and the mistakes
// that a person made. The test creates these objects. The controller creates the pods of DaemonSets, the scheduler
// places them, and the test sets the status of each pod as a kubelet would. No kubelet and no GPU is needed. Each state
// lists the findings that it must produce. They are written by hand, from NVIDIA's documentation and code and from
// articles about such clusters.
//
// The tests have the build tag e2e and do not need root. Run them with make states.
package operator
