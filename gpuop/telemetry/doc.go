// Package telemetry reads what GPUs and their pods did over a window, and how GPUs are connected,
// from a Prometheus or from the /metrics pages of exporters.
//
// It knows this project's families in both vocabularies and those of NVIDIA's dcgm-exporter, and
// brings both to one Usage, in which a Stat without samples is unknown: nothing is made up. It owns
// its HTTP client, sends queries that only read, and judges nothing: package advise does.
package telemetry
