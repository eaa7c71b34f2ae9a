package server

import (
	"html"
	"net/http"
	"strings"
)

// newLanding returns the handler of the page that a person sees who types the
// address into a browser.
func newLanding(opts Options) http.Handler {
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>dcgm-exporter</title></head>\n<body><h1>dcgm-exporter</h1>\n")
	if opts.Version != "" {
		b.WriteString("<p>Version " + html.EscapeString(opts.Version) + "</p>\n")
	}
	b.WriteString("<ul>\n")
	link := func(path, what string) {
		b.WriteString("<li><a href=\"" + path + "\">" + path + "</a> " + what + "</li>\n")
	}
	link("/metrics", "the metrics, for Prometheus")
	link("/health", "whether the collection is running, for probes")
	link("/-/ready", "whether there is something to scrape")
	if opts.Explain != nil {
		link("/debug/explain-device?id=nvidia0", "how an id of the kubelet finds its GPU and its pod")
	}
	if opts.Lifecycle {
		b.WriteString("<li>POST /-/reload, /-/release, /-/acquire, /-/profiling/pause, /-/profiling/resume</li>\n")
	}
	if opts.Pprof {
		link("/debug/pprof/", "profiles of this process")
	}
	b.WriteString("</ul></body></html>\n")
	page := []byte(b.String())
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page) // the client may be gone
	})
}
