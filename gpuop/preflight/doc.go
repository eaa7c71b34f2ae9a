// Package preflight judges whether NVIDIA's GPU Operator can be installed on a cluster, or upgraded
// there, with the intended settings: versions against the operator's support matrix, what the operator
// would compute of nodes that differ, and what would stand in its way.
//
// Judge is pure: it takes a State and no clock. Settings are looked up in the intended values, then in
// the ClusterPolicy that is installed, then in the chart's defaults.
package preflight
