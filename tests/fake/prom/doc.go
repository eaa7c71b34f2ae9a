// Package prom reads pages as a Prometheus server does, and finds promtool for tests.
package prom
