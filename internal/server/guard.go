package server

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"
)

// nosniff keeps a browser from taking a label's value for a script.
var nosniff = []string{"nosniff"}

// guard stands before every route: it sets what every response has, refuses names that a page of
// another site could have made up, and makes a panic a failed request.
func (s *Server) guard(next http.Handler) http.Handler {
	machine, _ := os.Hostname() // without one, one name less
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Content-Type-Options"] = nosniff
		if s.local.Load() && !isOwn(r.Host, machine) {
			http.Error(w, "the Host of the request names another machine, and --address is of loopback", http.StatusMisdirectedRequest)
			return
		}
		defer s.recovered(w, r)
		next.ServeHTTP(w, r)
	})
}

// recovered makes a panic of a request a response. It is called by defer.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if s.panicked.CompareAndSwap(false, true) { // a scrape repeats it
		s.opt.Log.Error("A request panicked", "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	}
	http.Error(w, "internal error; the log has it", http.StatusInternalServerError)
}

// isOwn reports whether the Host of a request is an address or a name of this machine. A page of a
// site whose name was rebound to 127.0.0.1 has the site's name in it, which is never an address. A
// proxy in front may pass on the address that it was called by.
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
