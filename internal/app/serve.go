package app

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
)

// buildServer makes the reloader and the HTTP server.
func (e *exporter) buildServer() (err error) {
	e.reloads = newReloader(e.registry, e.log, e.reconfigure)
	e.reloads.setActiveHash(e.hash)
	web := e.config.Web
	e.server, err = server.New(server.Options{
		Current:       e.currentPage,
		Healthy:       e.healthy,
		Ready:         func() bool { return e.loop.Ready() && e.sources.isReady() },
		Reloading:     e.reloads.reloading,
		Reload:        func(ctx context.Context) error { return e.reloads.reload(ctx, "POST /-/reload") },
		LandingPage:   web.LandingPage,
		Interval:      e.config.Collection.Interval,
		Registerer:    e.registry,
		Log:           e.log,
		Version:       e.process.build().Version,
		Address:       web.Address,
		SystemdSocket: web.SystemdSocket,
		ConfigFile:    web.ConfigFile,
		ReadTimeout:   web.ReadTimeout,
		WriteTimeout:  web.WriteTimeout,
		MaxRequests:   web.MaxRequests,
		Lifecycle:     web.Lifecycle,
		Pprof:         web.Pprof,
		Serving: func(a net.Addr) {
			e.lines.release()
			e.log.Info("Listening", "url", metricsURL(a, web.ConfigFile != ""))
			if e.process.Listening != nil {
				e.process.Listening(a)
			}
		},
	})
	if err != nil {
		return err
	}
	e.files.started = true // a reload must not wait for the writer of a pipe
	e.watch.follow(append(watched(e.config), e.server.WebFiles()...))
	return nil
}

// currentPage returns the latest page. If that has expired, it returns a page with only the exporter's own metrics,
// which say that the collection is stalled. It never waits for the collection.
func (e *exporter) currentPage() *exposition.Page {
	if p := e.pages.Current(); p != nil || e.pages.Expired() <= 0 {
		return p
	}
	if !e.config.Web.ExporterMetrics {
		return exposition.NewPage([]byte("# the collection is stalled\n"))
	}
	return exposition.NewPage(e.pipeline.self.stalled())
}

// healthy returns an error if the collection hangs or if the latest page has expired.
func (e *exporter) healthy() error {
	if err := e.loop.Healthy(); err != nil {
		return err
	}
	if beyond := e.pages.Expired(); beyond > 0 {
		return fmt.Errorf("%w: the page expired %v ago", gpu.ErrStalled, beyond.Round(time.Millisecond))
	}
	return nil
}

// metricsURL returns the URL of the page for a browser.
func metricsURL(a net.Addr, secured bool) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String() // a unix socket
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if secured {
		scheme = "http(s)" // the web configuration decides which
	}
	return scheme + "://" + net.JoinHostPort(host, port) + "/metrics"
}
