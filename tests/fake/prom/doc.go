// Package prom parses pages and evaluates queries like a Prometheus server. It also finds promtool for tests.
package prom
