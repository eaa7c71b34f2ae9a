// Package nvml is the source for hosts without DCGM: it reads GPUs and MIG instances through
// libnvidia-ml, with go-nvml.
//
// It serves DCGM's fields, and its values are DCGM's: the same calls, units, roundings and
// meanings, or a fault that says that there is no value. It declines what it cannot give in the
// same sense (utilization of GPUs that are cut by MIG, profiling without GPM, what only DCGM's own
// modules measure).
//
// The collector owns a Session; all calls of a Session to the driver are made by its owner's
// goroutine, one at a time, and none is made behind its back: XIDs wait in the driver's event sets
// until Read takes them. A GPU instance has the entity id 100 × index of the GPU + NVML's
// GPU-instance id, which is what the "i:" device selector takes here.
//
// A process keeps the NVML that it loaded first, whatever is closed and opened: the linker binds
// go-nvml's calls to it for good. Open says so (ErrReplaced) when the driver has another version
// since.
//
// The package never invents a value, never looks at /proc or the kernel log, and never calls a
// function that the loaded driver does not have.
package nvml
