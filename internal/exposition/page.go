package exposition

import (
	"compress/gzip"
	"sync"
	"sync/atomic"
	"time"
)

// A Page is one rendered page. Its bytes do not change for as long as the reader has a reference;
// afterwards they are written over. The caller that got the page from Encode, NewPage or Acquire
// releases it exactly once.
type Page struct {
	pool *pool
	refs atomic.Int32
	body []byte

	zip    sync.Mutex
	zipped []byte // empty until it is requested
}

// NewPage returns a page of its own over body, which it takes over. It is for pages that no Encoder
// made.
func NewPage(body []byte) *Page {
	p := &Page{pool: &pool{}, body: body}
	p.refs.Store(1)
	return p
}

// Bytes returns the page in the text format. The caller must have a reference for as long as it
// reads them, and must not change them.
func (p *Page) Bytes() []byte { return p.body }

// Gzip returns the page compressed, under the rules of Bytes. The first caller compresses; all
// others wait for it and get the same bytes.
func (p *Page) Gzip() []byte {
	p.zip.Lock()
	defer p.zip.Unlock()
	if len(p.zipped) == 0 {
		p.zipped = p.pool.compress(p.zipped, p.body)
	}
	return p.zipped
}

// Release gives the caller's reference back.
func (p *Page) Release() {
	if p.refs.Add(-1) == 0 {
		p.pool.put(p)
	}
}

// Pages has the page that is served now. Its zero value has none.
type Pages struct {
	// A mutex, held for a few instructions and never while anything is read or written: an atomic
	// pointer alone could hand out a page whose last reference goes between the load and the count.
	mu      sync.Mutex
	current *Page
	expires time.Time // of current; zero for never
}

// Publish makes p the current page, for good, and takes over the caller's reference.
func (ps *Pages) Publish(p *Page) { ps.publish(p, time.Time{}) }

// PublishFor is Publish for a page that must not be served for longer than limit.
func (ps *Pages) PublishFor(p *Page, limit time.Duration) { ps.publish(p, time.Now().Add(limit)) }

func (ps *Pages) publish(p *Page, expires time.Time) {
	ps.mu.Lock()
	old := ps.current
	ps.current, ps.expires = p, expires
	ps.mu.Unlock()
	if old != nil {
		old.Release()
	}
}

// Expired returns for how long the current page has been past its limit; 0 or less where it is not.
func (ps *Pages) Expired() time.Duration {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.expired()
}

func (ps *Pages) expired() time.Duration {
	if ps.expires.IsZero() {
		return 0
	}
	return time.Since(ps.expires)
}

// Acquire returns the current page with a reference for the caller; nil before the first Publish, and
// where the page is past its limit.
func (ps *Pages) Acquire() *Page {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.current == nil || ps.expired() > 0 {
		return nil
	}
	ps.current.refs.Add(1)
	return ps.current
}

// spare is how many released pages are kept: in steady state one is served, one is written, and one
// may still be read by a slow scraper.
const spare = 2

// A pool keeps released pages, and the one compressor that they share.
type pool struct {
	mu   sync.Mutex
	free []*Page

	zip  sync.Mutex
	gzip *gzip.Writer
	sink appender
}

// take returns an empty page with one reference.
func (pl *pool) take() *Page {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	var p *Page
	if n := len(pl.free); n > 0 {
		p, pl.free[n-1] = pl.free[n-1], nil
		pl.free = pl.free[:n-1]
	} else {
		p = &Page{pool: pl}
	}
	p.refs.Store(1)
	return p
}

func (pl *pool) put(p *Page) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if len(pl.free) < spare {
		p.body, p.zipped = p.body[:0], p.zipped[:0]
		pl.free = append(pl.free, p)
	}
}

// compress appends src, compressed, to dst. Level 1: on a page of 1.8 MB it takes a third of the
// time of the default level, and label text shrinks twentyfold either way.
func (pl *pool) compress(dst, src []byte) []byte {
	pl.zip.Lock()
	defer pl.zip.Unlock()
	pl.sink.buf = dst
	if pl.gzip == nil {
		pl.gzip, _ = gzip.NewWriterLevel(&pl.sink, gzip.BestSpeed) // fails for unknown levels only
	} else {
		pl.gzip.Reset(&pl.sink)
	}
	// Writing to memory can't fail.
	_, _ = pl.gzip.Write(src)
	_ = pl.gzip.Close()
	dst, pl.sink.buf = pl.sink.buf, nil
	return dst
}

// An appender is an io.Writer over a slice.
type appender struct{ buf []byte }

func (a *appender) Write(b []byte) (int, error) {
	a.buf = append(a.buf, b...)
	return len(b), nil
}
