package server

import (
	"bytes"
	"context"
	_ "embed" // the files of the landing page
	"encoding/json"
	"html/template"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	if s.opt.LandingPage {
		s.handleLanding(mux)
	}
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	// Probes that were written for NVIDIA's exporter expect status 200, the body OK and these headers.
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		page := s.opt.Current()
		if page != nil {
			page.Release()
		}
		w.Header().Set("X-Registry-Available", strconv.FormatBool(page != nil))
		w.Header().Set("X-Reload-In-Progress", strconv.FormatBool(s.opt.Reloading()))
		answer(w, s.opt.Healthy(), "OK")
	})
	// A hanging driver call fails the liveness probe, a lost GPU does not.
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, s.opt.Healthy(), "healthy\n")
	})
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if s.opt.Ready() {
			answer(w, nil, "ready\n")
		} else {
			tryLater(w, "not ready: the first cycle has not ended, or the host engine is unavailable; see the log")
		}
	})
	// Pages of other sites, open in an operator's browser, must not control the exporter.
	reload := http.NewCrossOriginProtection().Handler(s.protected(s.serveReload))
	if !s.opt.Lifecycle {
		reload = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "/-/reload is off; see --web-enable-lifecycle", http.StatusForbidden)
		})
	}
	mux.Handle("POST /-/reload", reload)
	if s.opt.Pprof {
		mux.Handle("/debug/pprof/", s.protected(pprof.Index))
		mux.Handle("/debug/pprof/cmdline", s.protected(pprof.Cmdline))
		mux.Handle("/debug/pprof/profile", s.protected(pprof.Profile))
		mux.Handle("/debug/pprof/symbol", s.protected(pprof.Symbol))
		mux.Handle("/debug/pprof/trace", s.protected(pprof.Trace))
	}
	return mux
}

// serveReload reloads the configuration. A client that disconnects does not cancel the reload. The write deadline is
// extended if possible, because a reload can take longer than a scrape.
func (s *Server) serveReload(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reloadLimit + shutdownGrace))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), reloadLimit)
	defer cancel()
	if err := s.opt.Reload(ctx); err != nil {
		http.Error(w, "nothing changed: "+err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, nil, "reloaded\n")
}

// answer writes fine with status 200, or err with status 503.
func answer(w http.ResponseWriter, err error, fine string) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(fine)) // the client may have disconnected
}

func tryLater(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusServiceUnavailable)
}

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

// unprotected says what a protected endpoint requires. Without it, every request is rejected.
const unprotected = "needs authentication in --web-config-file, or --address on loopback"

// protected admits a request that came over loopback or was authenticated, either by a password, which exporter-toolkit
// has checked, or by the client certificate of its connection. A connection that was opened before certificates were
// required has none. Requests from pages of other sites are always rejected.
func (s *Server) protected(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _, password := r.BasicAuth()
		authenticated := password && s.web.Load().users || r.TLS != nil && len(r.TLS.VerifiedChains) > 0
		switch {
		case r.Header.Get("Sec-Fetch-Site") == "cross-site":
			http.Error(w, "requests from pages of other sites are rejected", http.StatusForbidden)
		case !authenticated && (!s.local.Load() || s.web.Load().authenticates):
			http.Error(w, "this endpoint "+unprotected, http.StatusForbidden)
		default:
			next(w, r)
		}
	})
}

// isLoopback reports whether a listen address, host:port, is on loopback. Names other than localhost are not, because
// they may resolve to any address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

var (
	//go:embed landing/index.html
	indexPage string
	//go:embed landing/style.css
	style []byte
	//go:embed landing/page.js
	script []byte
)

// contentPolicy allows only the page's own style, script and /metrics.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// handleLanding adds the page at /, its style and its script. The script reads /metrics once per collection interval.
func (s *Server) handleLanding(mux *http.ServeMux) {
	var page bytes.Buffer
	_ = template.Must(template.New("index").Parse(indexPage)).Execute(&page, s.opt) // cannot fail: it writes to memory
	mux.Handle("GET /{$}", asset("text/html; charset=utf-8", page.Bytes()))
	mux.Handle("GET /landing/style.css", asset("text/css; charset=utf-8", style))
	mux.Handle("GET /landing/page.js", asset("text/javascript; charset=utf-8", script))
	mux.Handle("GET /landing/codes.json", asset("application/json", codes()))
}

// codes returns the texts with which the page explains XIDs, verdicts and missing values, in JSON.
func codes() []byte {
	type xid struct {
		Text     string                `json:"text"`
		Severity catalog.AlertSeverity `json:"severity"`
	}
	all := struct {
		XIDs        map[int64]xid     `json:"xids"`
		Reasons     map[string]string `json:"reasons"`
		Unavailable map[string]string `json:"unavailable"`
	}{map[int64]xid{}, verdict.Reasons(), gpu.Reasons()}
	for _, code := range catalog.XIDsOf(catalog.XIDClasses()...) {
		all.XIDs[code] = xid{catalog.XIDMessage(code), catalog.XIDOf(code).Class.Severity}
	}
	text, _ := json.Marshal(all) // cannot fail: it has only strings
	return text
}

func asset(kind string, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		_, _ = w.Write(body) // the client may have disconnected
	})
}
