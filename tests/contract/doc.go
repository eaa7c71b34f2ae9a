// Package contract is the contract test suite for sources. It runs with the simulator, with NVML (go-nvml's mock server
// and the test library), with the DCGM test library, and with real hardware. Only tests import it.
//
// A Read returns:
//
//   - Samples: at most one sample of each cell, the newest, with its time.
//   - Trails: for fields with Field.AllSamples, every sample since the previous Read of the session. Each sample is
//     returned once, and samples of a cell are in time order. The last one is the newest sample.
//   - XIDs: each XID once per session, with the same ID in every session. XIDs are never samples.
//   - Faults: what could not be read, and why. A lost GPU is a fault of its row.
//
// Trails are tested with random histories of samples, Reads and sessions: no sample may be lost or repeated. The suite
// uses a source only through the collector's interfaces.
package contract
