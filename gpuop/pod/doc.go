// Package pod checks the GPU requests of Pods, and of any object with a pod template, such as Deployments, PyTorchJobs
// and RayClusters. It does not check the rest of a pod.
package pod
