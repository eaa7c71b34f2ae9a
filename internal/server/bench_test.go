package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
)

// sink is a response writer that discards the response.
type sink struct {
	header http.Header
	n      int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(b []byte) (int, error) { s.n += len(b); return len(b), nil }

// page returns n bytes in the text format.
func page(n int) []byte {
	const line = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-614bc606-2078-5444-8c9c-4f8e98ae4dcc\"} 41\n"
	return []byte(strings.Repeat(line, n/len(line)+1)[:n])
}

func TestScrapeDoesNotAllocate(t *testing.T) {
	pages := serving(page(45_000))
	s := newServer(t, server.Options{Current: pages.Current, MaxRequests: 40, Registerer: prometheus.NewRegistry()})
	// Subtract the router's allocations, measured with a route that does nothing.
	allocs := func(path, encoding string) float64 {
		r, err := http.NewRequest("GET", path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", encoding)
		w := &sink{header: http.Header{}}
		return testing.AllocsPerRun(100, func() { s.Handler().ServeHTTP(w, r) })
	}
	router := func() float64 {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})
		r, err := http.NewRequest("GET", "/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		w := &sink{header: http.Header{}}
		return testing.AllocsPerRun(100, func() { mux.ServeHTTP(w, r) })
	}()
	for _, encoding := range []string{"identity", "gzip;q=0.9, *;q=0.1"} {
		if n := allocs("/metrics", encoding) - router; n != 0 {
			t.Errorf("Accept-Encoding %q: allocations per scrape = %v, want 0", encoding, n)
		}
	}
}

// scraper returns a function that scrapes url over one keep-alive connection and reads the whole page.
func scraper(b *testing.B, url string) func() {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1}}
	b.Cleanup(client.CloseIdleConnections)
	buf := make([]byte, 64<<10)
	return func() {
		res, err := client.Get(url)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, res.Body, buf); err != nil {
			b.Fatal(err)
		}
		_ = res.Body.Close()
	}
}

// connections is the number of connections of each kind. On loopback, some connections transfer large pages twice as
// fast as others, with any server.
const connections = 16

// BenchmarkScrape alternates between scraping a rendered page and a handler that writes a constant slice of the same
// length. It reports both medians and their ratio.
func BenchmarkScrape(b *testing.B) {
	for _, size := range []int{45_000, 700_000, 2_500_000} {
		b.Run(strconv.Itoa(size/1000)+"kB", func(b *testing.B) {
			body := page(size)
			pages := new(exposition.Pages)
			pages.Publish(exposition.NewPage(body), 0)
			ourURL := "http://" + start(b, server.Options{
				Current: pages.Current, Registerer: prometheus.NewRegistry(), MaxRequests: 40, WriteTimeout: 30 * time.Second,
			}) + "/metrics"
			theirURL := "http://" + constant(b, body) + "/metrics"
			var ours, theirs [connections]func()
			var our, their [connections][]time.Duration
			for i := range connections {
				ours[i], theirs[i] = scraper(b, ourURL), scraper(b, theirURL)
				ours[i]()
				theirs[i]()
			}
			timed := func(scrape func()) time.Duration {
				at := time.Now()
				scrape()
				return time.Since(at)
			}
			for i := 0; b.Loop(); i++ {
				c := i / 2 % connections
				if i%2 == 0 { // the second of the pair finds warmer caches
					our[c] = append(our[c], timed(ours[c]))
					their[c] = append(their[c], timed(theirs[c]))
				} else {
					their[c] = append(their[c], timed(theirs[c]))
					our[c] = append(our[c], timed(ours[c]))
				}
			}
			// Use medians: other load on the machine distorts the means.
			var o, t time.Duration
			for i := range connections {
				o += median(our[i]) / connections
				t += median(their[i]) / connections
			}
			b.ReportMetric(float64(o.Nanoseconds())/1e3, "µs/scrape")
			b.ReportMetric(float64(t.Nanoseconds())/1e3, "µs/constant")
			b.ReportMetric(float64(o)/float64(t), "times-constant")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// median returns the median, or 0 if there are no durations.
func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)/2]
}

// constant serves body at /metrics with a minimal handler.
func constant(b *testing.B, body []byte) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	length := strconv.Itoa(len(body))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", length)
		_, _ = w.Write(body)
	})
	srv := &http.Server{Handler: mux, WriteTimeout: 30 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	b.Cleanup(func() {
		_ = srv.Shutdown(context.WithoutCancel(b.Context()))
		<-done
	})
	return l.Addr().String()
}
