// Package advise says from what pods used over a window which way of sharing GPUs would hold them,
// and how many GPUs that takes.
//
// Judge is pure: a telemetry.Usage and Options in, an Advice out, without clock, network or files.
// Its decisions are the rows of Rules, each of which rests on a cell of the comparison in package
// explain; placements are those of package mig, configurations those of packages sharing and mig.
// There is no advice without its evidence: a workload of which activity or memory is unknown keeps
// what it has.
package advise
