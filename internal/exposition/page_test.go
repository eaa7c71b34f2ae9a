package exposition_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func gunzip(t testing.TB, b []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// generation returns a snapshot whose every sample says n: a page that mixes two generations shows.
func generation(n, samples int) *gpu.Snapshot {
	f := gpu.Family{Name: "generation", Type: gpu.MetricGauge}
	for i := range samples {
		f.Series = append(f.Series, gpu.Series{
			Row: gpu.AllRows, Labels: []gpu.Label{{Name: "i", Value: fmt.Sprint(i)}}, Value: gpu.Int(int64(n)),
		})
	}
	return &gpu.Snapshot{Families: []gpu.Family{f}}
}

func TestPagesBeforeTheFirst(t *testing.T) {
	var pages exposition.Pages
	if p := pages.Current(); p != nil {
		t.Errorf("Acquire = %v before the first Publish, want nil", p)
	}
}

func TestGzip(t *testing.T) {
	for _, body := range [][]byte{{}, []byte("up 1\n"), bytes.Repeat([]byte(`up{instance="a"} 1`+"\n"), 10_000)} {
		p := exposition.NewPage(body)
		first := p.Gzip()
		if got := gunzip(t, first); !bytes.Equal(got, body) {
			t.Errorf("%d bytes came back as %d others", len(body), len(got))
		}
		if second := p.Gzip(); &second[0] != &first[0] {
			t.Error("a second call compressed again")
		}
	}
}

// Readers that hold a page for long, across many publishes, read what they acquired: every byte of
// it, and nothing of a later page.
func TestSlowReaders(t *testing.T) {
	const readers, publishes, size = 8, 400, 50
	e := exposition.NewEncoder(exposition.Options{})
	var pages exposition.Pages
	pages.Publish(e.Encode(generation(0, size)))

	stop := make(chan struct{})
	var wg sync.WaitGroup
	for r := range readers {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				p := pages.Current()
				before := bytes.Clone(p.Bytes())
				for range r * 20 { // the slowest holds it for many publishes
					runtime.Gosched()
				}
				if !bytes.Equal(before, p.Bytes()) {
					t.Error("a page changed while it was held")
				}
				if r%2 == 0 && !bytes.Equal(gunzip(t, p.Gzip()), before) {
					t.Error("the compressed page is another one")
				}
				values := map[float64]bool{}
				for _, v := range parse(t, before)["generation"].Samples {
					values[v] = true
				}
				if len(values) != 1 {
					t.Errorf("a page mixes generations %v", values)
				}
			}
		})
	}
	for n := range publishes {
		pages.Publish(e.Encode(generation(n+1, size)))
		runtime.Gosched()
	}
	close(stop)
	wg.Wait()
}

// A page is not served past its limit: its stand-in is, until the next one.
func TestPagePastItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pages exposition.Pages
		served := func() string {
			p := pages.Current()
			if p == nil {
				return ""
			}
			return string(p.Bytes())
		}
		page := func(text string) *exposition.Page { return exposition.NewPage([]byte(text)) }
		step := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			if got := served(); got != want {
				t.Errorf("served %q, want %q", got, want)
			}
		}
		pages.PublishFor(page("first"), 10*time.Second)
		step(10*time.Second, "first")
		step(1, "")
		if d := pages.Expired(); d != 1 {
			t.Errorf("Expired = %v, want 1ns", d)
		}
		pages.PublishFor(page("second"), 5*time.Second)
		step(time.Second, "second")
		if d := pages.Expired(); d > 0 {
			t.Errorf("Expired = %v of a fresh page", d)
		}
		step(5*time.Second, "")
		pages.Publish(page("for good"))
		step(1000*time.Hour, "for good")
	})
}
