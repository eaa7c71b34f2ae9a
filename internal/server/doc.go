// Package server serves pre-rendered pages over HTTP.
//
// A scrape of /metrics writes the bytes of the current page. It calls no driver, takes no lock of the collector and
// allocates nothing beyond net/http. Package app renders the pages and decides what is healthy.
//
// exporter-toolkit provides TLS, passwords and systemd sockets. /-/reload and /debug/pprof/ are off by default. They
// require a password, a client certificate or a loopback address.
package server
