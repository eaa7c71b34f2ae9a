// Package operatorstate makes the gpu_operator_* series: what NVIDIA's GPU Operator has made of
// this node, against what it was to make. It compares the node's own object, the files of the
// operator's validator and the GPUs that the driver has, and judges with the packages that gpuop
// judges with.
//
// It has a goroutine of its own, which no cycle waits for. The collector hands it each topology;
// the node is requested once a minute. What is not known is absent, never zero, and what was known
// is forgotten when it is old.
//
// It requests nothing itself: app gives it the function that reads the node.
package operatorstate
