package server

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"time"
)

//go:embed landing
var landing embed.FS

// contentPolicy lets the page load its own style, script and /metrics, and nothing else.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// handleLanding serves the page at /, its style and its script. The script reads /metrics once per
// collection interval.
func (s *Server) handleLanding(mux *http.ServeMux) error {
	source, err := landing.ReadFile("landing/index.html")
	if err != nil {
		return err
	}
	parsed, err := template.New("index").Parse(string(source))
	if err != nil {
		return err
	}
	var page bytes.Buffer
	err = parsed.Execute(&page, struct {
		Version          string
		Interval         time.Duration
		Lifecycle, Pprof bool
	}{s.opt.Version, s.opt.Interval, s.opt.Lifecycle, s.opt.Pprof})
	if err != nil {
		return err
	}
	mux.Handle("GET /{$}", asset("text/html; charset=utf-8", page.Bytes()))
	for name, kind := range map[string]string{"style.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"} {
		body, err := landing.ReadFile("landing/" + name)
		if err != nil {
			return err
		}
		mux.Handle("GET /landing/"+name, asset(kind, body))
	}
	return nil
}

func asset(kind string, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		_, _ = w.Write(body) // the client may be gone
	})
}
