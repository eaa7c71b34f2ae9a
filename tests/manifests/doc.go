// Package manifests holds what lies in deployment/ against the programs that read it: the
// Kubernetes manifests against the API's own types and against the exporter's configuration table,
// the image's file list against what manifests name, and the systemd unit against systemd.
//
// Flags and variables are not compared with a list: the exporter is started in process with the
// arguments and the environment of the manifest, over a simulated node, and its probes and its page
// are requested where the manifest says that they are.
package manifests
