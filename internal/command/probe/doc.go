// Package probe scrapes the page of a running exporter, and reports what it serves: for "helm
// test", for a container's health check, and for a person on a machine without curl.
//
// It parses the page with Prometheus' own parser, keeps nothing, and changes nothing.
package probe
