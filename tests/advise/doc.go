// Package advise runs gpuop advise over simulated nodes: a real Prometheus has what it would
// have scraped of them, and what is recommended is held against what a person would say, with the
// reason.
package advise
