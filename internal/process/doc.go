// Package process says which pods a process belongs to, by the control group that the kernel keeps
// it in: no API server, no runtime and no guess.
//
// Pods reads the text of /proc/<pid>/cgroup, of version 1 and 2, as the kubelet's two drivers
// (cgroupfs and systemd) and containerd, CRI-O and docker name their groups, nested or not. A
// Resolver reads /proc through an fs.FS, remembers a bounded number of processes by id and start
// time, and refuses where the process ids are not those of the host.
//
// The collector calls a Resolver through app, on one goroutine. The package never looks at a
// process's environment, files or memory.
package process
