// Package jobmapper says which HPC jobs use which GPUs: an Attributor over a folder of job files,
// which a scheduler's prolog and epilog keep.
//
// A file is named by the GPU ("3"), or by the GPU and the GPU instance ("3.1", the labels gpu and
// GPU_I_ID), and holds a job per line. The Mapper keeps the files' content: it looks at every file
// once per cycle, reads only those that changed, and returns the same owners for as long as they
// say the same. A file that cannot be read costs its own GPU the labels, and is counted.
//
// It never writes to the folder, never keeps a job that its file no longer names, and never copies
// a device's series: several jobs on one GPU are several owners, which the series carry no label
// of.
package jobmapper
