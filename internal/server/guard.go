package server

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// nosniff keeps browsers from interpreting a label value as a script.
var nosniff = []string{"nosniff"}

// guard runs before every route. It sets headers and rejects foreign Host names (DNS rebinding).
func (s *Server) guard(next http.Handler) http.Handler {
	machine, _ := os.Hostname() // on an error, one name fewer is accepted
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Content-Type-Options"] = nosniff
		if s.local.Load() && !isOwn(r.Host, machine) {
			const why = "the Host header names another machine, but --address is on loopback"
			http.Error(w, why, http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwn reports whether a request's Host is an IP address or a name of this machine. After DNS rebinding, a browser
// sends the name of the other site, never an address. A proxy may send its own address.
func isOwn(host, machine string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), "."))
	if _, err := netip.ParseAddr(host); err == nil || host == "" { // HTTP/1.0 has no Host
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || host == strings.ToLower(machine)
}
