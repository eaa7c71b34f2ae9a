// Package host checks a GPU node by its files: kernel, driver, device nodes, fabric manager, the validator's files, the
// container runtime's configuration and CDI specifications. It works on the node, in a pod that mounts the node's root,
// or on a copy of the files.
//
// The checks run in dependency order, and the report names the first failure. A check whose files cannot be read is
// Unknown. All paths, including absolute symbolic links, are resolved inside the root.
//
// The package runs no program, opens no device and writes nothing.
package host
