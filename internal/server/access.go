package server

import (
	"net"
	"net/http"
	"slices"
)

// unprotected says what a protected endpoint requires. Without it, every request is rejected.
const unprotected = "needs authentication in --web-config-file, or --address on loopback"

// protected admits a request that came over loopback or was authenticated, either by a password, which exporter-toolkit
// has checked, or by the client certificate of its connection. A connection that was opened before certificates were
// required has none. Requests from pages of other sites are always rejected.
func (s *Server) protected(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _, password := r.BasicAuth()
		authenticated := password && s.web.facts().users || r.TLS != nil && len(r.TLS.VerifiedChains) > 0
		switch {
		case r.Header.Get("Sec-Fetch-Site") == "cross-site":
			http.Error(w, "requests from pages of other sites are rejected", http.StatusForbidden)
		case !authenticated && (!s.local.Load() || s.web.facts().authenticates):
			http.Error(w, "this endpoint "+unprotected, http.StatusForbidden)
		default:
			next(w, r)
		}
	})
}

// allLoopback reports whether all listeners are on loopback. systemd may have opened some of them.
func allLoopback(listeners []net.Listener) bool {
	return !slices.ContainsFunc(listeners, func(l net.Listener) bool { return !isLoopback(l.Addr().String()) })
}

// isLoopback reports whether a listen address, host:port, is on loopback. Names other than localhost are not, because
// they may resolve to any address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
