package server

import (
	"bytes"
	_ "embed" // the files of the page
	"encoding/json"
	"html/template"
	"net/http"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
)

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
		all.XIDs[code] = xid{catalog.XIDMessage(code), catalog.XIDOf(code).Class.Severity()}
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
