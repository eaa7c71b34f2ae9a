// Package nvml is a fake libnvidia-ml.so.1, written in C, that runs scripts. Tests use it to run the complete go-nvml
// code path without a GPU. Only tests import this package. They build the library with gcc and the nvml.h of the
// go-nvml module.
//
// A script is a list of lines. Play can replace it at any time, and the library reads the new one at its next call. "#"
// starts a comment.
//
//	gpus N                            N GPUs (default 2), healthy H100s
//	version V                         driver version (default 570.124.06)
//	gpu I lost | denied | mig         fell off the bus; no permission; MIG mode
//	gpu I instance GI CI PROFILE MIB  a MIG device, for example 9 0 1g.10gb 9984
//	gpu I set KEY VALUE               a measurement; "-" makes it unsupported
//	gpu I set field.F[.L|.all] V      a field value: of the GPU, of link L, over all links
//	gpu I set start-GI SLICE          placement of a GPU instance, which only root can read
//	gpu I set nvlink.L gpu N          link L leads to a GPU; "down", or "-" for none
//	gpu I set samples.TYPE AT:VALUE … the driver's sample buffer of a sampling type
//	process I pid PID memory MIB [busy PERCENT at MICROSECONDS | graphics]
//	process I/GI/CI pid PID memory MIB
//	                                  a process; MIB is "-" if unknown,
//	                                  0 if the process has exited
//	xid I CODE [GI]                   an event, queued when the script is loaded
//	fail FUNCTION CODE [I]            the function returns CODE (for GPU I)
//	hang FUNCTION                     the function blocks until a script without this line is played
//	driver CODE                       every function returns CODE
//	static                            the script is not read again
//
// The ledger counts the calls of each function. open-inits, open-event-sets and open-gpm-samples are the numbers of
// open handles. most-at-once is the highest number of concurrent calls.
package nvml
