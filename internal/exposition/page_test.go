package exposition_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// Each page is compressed once and decompresses to its own text, however concurrently pages are compressed.
func TestGzip(t *testing.T) {
	var pages []*exposition.Page
	for _, n := range []int{0, 1, 1000, 10_000} {
		pages = append(pages, exposition.NewPage(bytes.Repeat([]byte(`up{instance="a"} 1`+"\n"), n)))
	}
	var group sync.WaitGroup
	for _, p := range slices.Concat(pages, pages) {
		group.Go(func() { p.Gzip() })
	}
	group.Wait()
	for _, p := range pages {
		first := p.Gzip()
		if got := gunzip(t, first); !bytes.Equal(got, p.Bytes()) {
			t.Errorf("page of %d bytes decompresses to %d bytes, want the same content", len(p.Bytes()), len(got))
		}
		if second := p.Gzip(); &second[0] != &first[0] {
			t.Error("second Gzip compressed the page again, want the bytes of the first")
		}
	}
}

// A page does not change while it is held, however many pages are published. After its release, its memory is reused.
func TestReleasedPagesAreReused(t *testing.T) {
	var pages exposition.Pages
	e, s := exposition.NewEncoder(exposition.Options{}), &gpu.Snapshot{Topology: world()}
	for _, name := range []string{"A", "B", "C"} {
		s.Columns = append(s.Columns, column(name, gpu.MetricGauge, everywhere(gpu.Float(1e9/3))))
	}
	pages.Publish(e.Encode(s), 0)
	held := pages.Current()
	before := bytes.Clone(held.Bytes())
	s.Columns = s.Columns[1:]
	for range 4 {
		pages.Publish(e.Encode(s), 0)
	}
	if !bytes.Equal(held.Bytes(), before) {
		t.Error("page changed while it was held, want it unchanged")
	}
	bytesOfHeld := held.Bytes()
	held.Release()
	for range 2 { // another buffer is used first
		pages.Publish(e.Encode(s), 0)
	}
	if bytes.Equal(bytesOfHeld, before) {
		t.Error("bytes of a released page are unchanged after later pages, want its memory reused")
	}
}

// Concurrent readers of the current page see a complete page, whatever is published meanwhile.
func TestPagesWithManyReaders(t *testing.T) {
	var pages exposition.Pages
	e := exposition.NewEncoder(exposition.Options{})
	publish := func(n int) {
		pages.Publish(e.Encode(&gpu.Snapshot{Families: []gpu.Family{{
			Name:   "n",
			Series: []gpu.Series{{Row: gpu.AllRows, Value: gpu.Int(int64(n))}},
			Help:   strings.Repeat(strconv.Itoa(n), 1000/len(strconv.Itoa(n))),
		}}}), 0)
	}
	publish(0)
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !done.Load() && !t.Failed() {
				p := pages.Current()
				text := string(p.Bytes())
				value := strings.TrimSuffix(text[strings.LastIndex(text, " ")+1:], "\n")
				if help := strings.Repeat(value, 1000/len(value)); !strings.Contains(text, " "+help+"\n") {
					t.Errorf("page = %s, want the same value in its help and its sample", text)
				}
				p.Release()
			}
		})
	}
	for n := range 2000 {
		publish(n + 1)
	}
	done.Store(true)
	readers.Wait()
}

// There is no page before the first one. A page that exceeds its limit is not served until the next one is published.
func TestExpiredPage(t *testing.T) {
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
				t.Errorf("served = %q, want %q", got, want)
			}
		}
		step(0, "")
		pages.Publish(page("first"), 10*time.Second)
		step(10*time.Second, "first")
		step(1, "")
		if d := pages.Expired(); d != 1 {
			t.Errorf("Expired = %v, want 1ns", d)
		}
		pages.Publish(page("second"), 5*time.Second)
		step(time.Second, "second")
		if d := pages.Expired(); d > 0 {
			t.Errorf("Expired = %v for a new page, want 0", d)
		}
		step(5*time.Second, "")
		pages.Publish(page("for good"), 0)
		step(1000*time.Hour, "for good")
	})
}
