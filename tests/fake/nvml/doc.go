// Package nvml is a libnvidia-ml.so.1 of the project's own, written in C, that plays scripts: with
// it the real go-nvml path, from dlopen to the last handle, runs without a GPU. It is imported by
// tests alone, which build it with gcc against the nvml.h of go-nvml's module.
//
// A script is a text of lines; Play replaces it at any time, and the library follows on its next
// call. "#" starts a comment.
//
//	gpus N                            N GPUs (default 2), healthy H100s
//	version V                         of the driver (default 570.124.06)
//	gpu I lost | denied | mig         gone from the bus; no permission; MIG mode
//	gpu I instance GI CI PROFILE MIB  a MIG device, for instance 9 0 1g.10gb 9984
//	gpu I set KEY VALUE               a measurement; "-" makes it unsupported
//	gpu I set field.F[.L|.all] V      a field value: of the GPU, of link L, over all links
//	gpu I set start-GI SLICE          where a GPU instance begins, which only root learns
//	gpu I set nvlink.L gpu N          link L leads to a GPU; "down", or "-" for none
//	gpu I set samples.TYPE AT:VALUE … the driver's buffer of a sampling type
//	process I pid PID memory MIB [busy PERCENT at MICROSECONDS | graphics]
//	process I/GI/CI pid PID memory MIB
//	                                  what runs there; MIB is "-" for unknown,
//	                                  0 for a process that has ended
//	xid I CODE [GI]                   an event, queued when the script is played
//	fail FUNCTION CODE [I]            the function returns CODE (for GPU I)
//	hang FUNCTION                     the function returns after the next Play
//	driver CODE                       every function returns CODE
//	static                            the script is not looked at again
//
// The ledger counts every call by function, and what is open: open-inits, open-event-sets and
// open-gpm-samples. most-at-once is how many calls ran at the same time.
package nvml
