// Package pod judges the GPUs that pods request, in any object with a pod in it: Deployments, PyTorchJobs, RayClusters. The
// API server judges the rest of a pod.
//
// The package knows no file by name and no cluster, and keeps no state.
package pod
