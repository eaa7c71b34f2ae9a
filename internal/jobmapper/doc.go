// Package jobmapper finds the HPC jobs that use each GPU. Its Mapper is an Attributor that reads a folder of job files,
// written by a scheduler's prolog and epilog.
//
// A file is named after a GPU ("3") or a GPU instance ("3.1", the labels gpu and GPU_I_ID) and has one job per line.
// The Mapper checks every file once per cycle and reads only those that changed. While their content is the same, it
// returns the same owners. If a file cannot be read, only its own GPU loses the labels, and the failure is counted.
//
// It never writes to the folder, and forgets a job once its file no longer names it.
package jobmapper
