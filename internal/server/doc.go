// Package server answers HTTP requests with finished pages.
//
// A scrape of /metrics writes the bytes of the current page. It calls no driver, takes no lock of the
// collector and allocates nothing beyond net/http. The server knows pages and functions; package app
// makes the page and defines healthy.
//
// exporter-toolkit serves TLS, passwords and systemd sockets. /-/reload and /debug/pprof/ are off by
// default, and need a password, a client certificate or an address on loopback.
package server
