// Package nvml is the source for hosts without DCGM: it reads GPUs and MIG instances through
// libnvidia-ml, with go-nvml.
//
// It serves DCGM's fields with DCGM's values: the same calls, units, roundings and meanings, or a
// fault. Declined are fields that it cannot give in the same sense (utilization of GPUs that are
// partitioned by MIG, profiling without GPM), fields of DCGM's own modules, and fields of links.
//
// The collector owns a Session. All calls of a Session to the driver are made by its owner's
// goroutine, one at a time: XIDs wait in the driver's event sets until Read takes them. A GPU
// instance has the entity id 100 × index of the GPU + NVML's GPU-instance id, which the "i:" device
// selector takes here.
//
// A process keeps the NVML that it loaded first, since the linker binds go-nvml's calls to it for
// good. Open reports ErrReplaced when the driver has another version since.
//
// The package reads neither /proc nor the kernel's log, and calls no function that the loaded driver
// does not have.
package nvml
