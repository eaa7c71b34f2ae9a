// Package contract is the contract that every Source passes: the simulator,
// NVML over go-nvml's mock server and over the test library, DCGM over the
// test library, and real hardware.
//
// It sees a source only through the collector's interfaces. It is imported by
// tests alone.
package contract
