package server

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// nosniff keeps a browser from taking a label's value for a script.
var nosniff = []string{"nosniff"}

// guard runs before every route. It sets the headers of every response and refuses foreign Host names (DNS rebinding).
func (s *Server) guard(next http.Handler) http.Handler {
	machine, _ := os.Hostname() // empty: one name less
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Content-Type-Options"] = nosniff
		if s.local.Load() && !isOwn(r.Host, machine) {
			http.Error(w, "the Host of the request names another machine, and --address is of loopback", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwn reports whether the Host of a request is an address or a name of this machine. After DNS
// rebinding a browser sends the name of the other site, never an address. A proxy may send its own
// address.
func isOwn(host, machine string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), "."))
	if _, err := netip.ParseAddr(host); err == nil || host == "" { // none: HTTP/1.0
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || host == strings.ToLower(machine)
}
