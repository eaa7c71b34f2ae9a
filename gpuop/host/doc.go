// Package host judges a node by its own files: kernel, driver, device nodes, fabric manager, the
// validator's files, the container runtime's configuration and CDI specs. The command gpuop node runs it
// on a node, in a pod with the node's root mounted, or on a copy of the files.
//
// Inspect returns one row for each link of the chain in which they depend on each other, and names
// the first that is broken. What may not be read, or lacks in a copy, is a row in the state Unknown,
// never one that is as intended.
//
// Paths are resolved within the root: an absolute symbolic link in a mounted root means a file of
// that root. The package runs no program, opens no device, reads no network and writes nothing.
package host
