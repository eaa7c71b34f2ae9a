// Package prom reads pages as a Prometheus server does, finds the programs of one for tests, and
// runs a server that has samples of any time.
package prom
