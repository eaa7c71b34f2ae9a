// Package process finds the pods that a process belongs to from its cgroup. It needs no API server and no container
// runtime.
//
// Pods parses /proc/<pid>/cgroup, version 1 or 2, as written for both cgroup drivers of the kubelet and for containerd,
// CRI-O and Docker, nested or not. A Resolver reads /proc through an fs.FS and remembers a bounded number of processes
// by PID and start time. It returns an error if the PIDs are not those of the host.
//
// The package reads no environment or command line of a process.
package process
