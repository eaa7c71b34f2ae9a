package server

import "net/http"

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
			http.Error(w, "this endpoint needs authentication in --web-config-file, or --address on loopback", http.StatusForbidden)
		default:
			next(w, r)
		}
	})
}
