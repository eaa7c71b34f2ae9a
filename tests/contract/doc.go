// Package contract is the contract that every Source passes: the simulator, NVML over
// go-nvml's mock server and over the test library, DCGM over the test library, and real hardware.
// Tests alone import it.
//
// What a Read puts where:
//
//   - Samples: the newest sample of each cell, one at most, with its own time.
//   - Trails: of the fields with Field.Every, every sample since the previous Read of the session, each
//     once, those of a cell in the order of their times. The last one is the newest sample.
//   - XIDs: each once in a session, under one ID in every session. Never as samples.
//   - Faults: what could not be read, and why. A lost GPU is a fault of its row.
//
// Random histories of samples, Reads and sessions hold the second rule: no sample twice, none lost.
// The suite sees a source only through the collector's interfaces.
package contract
