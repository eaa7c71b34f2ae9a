package exposition

import (
	"bytes"
	"compress/gzip"
	"sync"
	"sync/atomic"
	"time"
)

// A Page is one rendered page. Its bytes do not change while anyone holds it: once everyone has released it, its
// Encoder may write another page over them. A page that is never released is left to the garbage collector.
type Page struct {
	body    []byte
	expires time.Time // zero means never
	holders atomic.Int32
	spare   chan<- []byte // takes the bytes after the last Release; nil if they are not reused

	zip    sync.Once
	zipped []byte
}

// NewPage returns a page with the given body, which the caller holds. It takes ownership of body.
func NewPage(body []byte) *Page { return (&Page{body: body}).Hold() }

// Hold adds a holder to the page and returns the page. Someone must hold the page during the call, so that it cannot be
// released meanwhile.
func (p *Page) Hold() *Page {
	p.holders.Add(1)
	return p
}

// Release ends the caller's hold. The caller must not use the page or its bytes afterwards.
func (p *Page) Release() {
	if p.holders.Add(-1) > 0 {
		return
	}
	select {
	case p.spare <- p.body:
	default:
	}
}

// Bytes returns the page in the text format. The caller must not change it.
func (p *Page) Bytes() []byte { return p.body }

// Gzip returns the compressed page. The first caller compresses it; concurrent callers wait and get the same bytes.
func (p *Page) Gzip() []byte {
	p.zip.Do(func() { p.zipped = compress(p.body) })
	return p.zipped
}

// zipper compresses all pages, one at a time, because allocating a gzip writer takes about 1 MB. It uses the fastest
// level: for a page of 1.8 MB that takes a third of the time of the default level, and labels shrink twentyfold either
// way.
var zipper struct {
	sync.Mutex
	*gzip.Writer // nil before the first page
}

func compress(body []byte) []byte {
	zipper.Lock()
	defer zipper.Unlock()
	var b bytes.Buffer
	b.Grow(len(body)/16 + 512)
	if zipper.Writer == nil {
		zipper.Writer, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for unknown levels
	}
	zipper.Reset(&b)
	_, _ = zipper.Write(body) // writing to memory cannot fail
	_ = zipper.Close()
	zipper.Reset(nil) // do not keep the page's bytes
	return b.Bytes()
}

// Pages holds the current page. The zero value has none. It is safe for concurrent use.
type Pages struct {
	mu      sync.Mutex // only held to exchange the pointer or to hold the page
	current *Page
}

// Publish makes p the current page, which expires after limit. Zero means never. Publish takes over the caller's hold
// on p. The caller must not share p before.
func (ps *Pages) Publish(p *Page, limit time.Duration) {
	if limit > 0 {
		p.expires = time.Now().Add(limit)
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.current != nil {
		ps.current.Release()
	}
	ps.current = p
}

// Expired returns how long ago the current page expired. It returns zero or less if the page is still valid.
func (ps *Pages) Expired() time.Duration {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.current == nil || ps.current.expires.IsZero() {
		return 0
	}
	return time.Since(ps.current.expires)
}

// Current returns the current page, which the caller must release. It returns nil before the first Publish and after
// the page has expired.
func (ps *Pages) Current() *Page {
	if ps.Expired() > 0 {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.current == nil {
		return nil
	}
	return ps.current.Hold()
}
