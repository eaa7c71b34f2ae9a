package server

import (
	"net"
	"net/http"
	"slices"
)

// unprotected is why a protected endpoint is refused to every caller.
const unprotected = "needs authentication in --web-config-file, or --address on loopback"

// protected lets a request through if it came over loopback or was authenticated itself: by its password, which
// exporter-toolkit has checked, or by the client certificate of its connection. A connection that was opened before
// certificates were demanded has none. A page of another site never gets through.
func (s *Server) protected(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _, password := r.BasicAuth()
		authenticated := password && s.web.facts().users || r.TLS != nil && len(r.TLS.VerifiedChains) > 0
		switch {
		case r.Header.Get("Sec-Fetch-Site") == "cross-site":
			http.Error(w, "this endpoint is not for pages of other sites", http.StatusForbidden)
		case !authenticated && (!s.local.Load() || s.web.facts().authenticates):
			http.Error(w, "this endpoint "+unprotected, http.StatusForbidden)
		default:
			next(w, r)
		}
	})
}

// allLoopback reports whether the listeners, some of which systemd may have opened, are reached from this machine alone.
func allLoopback(listeners []net.Listener) bool {
	return !slices.ContainsFunc(listeners, func(l net.Listener) bool { return !isLoopback(l.Addr().String()) })
}

// isLoopback reports whether a listen address, host:port, is on loopback. A name other than localhost is not, since it may
// resolve to any address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
