package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// BenchmarkScrape scrapes a rendered page and, for comparison, a handler that writes a constant slice of the same
// length.
func BenchmarkScrape(b *testing.B) {
	for _, size := range []int{45_000, 700_000, 2_500_000} {
		body := page(size)
		address := start(b, server.Options{
			Current: serving(body).Current, MaxRequests: 40, WriteTimeout: 30 * time.Second,
		})
		constant := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body)
		}))
		defer constant.Close()
		for name, url := range map[string]string{"page": "http://" + address + "/metrics", "constant": constant.URL} {
			b.Run(fmt.Sprintf("%dkB/%s", size/1000, name), func(b *testing.B) {
				scrape := scraper(b, url)
				for b.Loop() {
					scrape()
				}
			})
		}
	}
}
