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
	body       []byte
	expires    time.Time // zero means never
	compressor *compressor
	holders    atomic.Int32
	spare      chan<- []byte // takes the bytes after the last Release; nil if they are not reused

	zip    sync.Once
	zipped []byte
}

// NewPage returns a page with the given body and takes ownership of it.
func NewPage(body []byte) *Page { return newPage(body, new(compressor), nil) }

// newPage returns a page that the caller holds.
func newPage(body []byte, c *compressor, spare chan<- []byte) *Page {
	p := &Page{body: body, compressor: c, spare: spare}
	p.holders.Store(1)
	return p
}

// Hold adds a holder to the page and returns the page. Someone must hold the page during the call, so that it cannot be
// released meanwhile.
func (p *Page) Hold() *Page {
	p.holders.Add(1)
	return p
}

// tryHold is like Hold for a page that may have been released already. It returns false if it was.
func (p *Page) tryHold() bool {
	for {
		n := p.holders.Load()
		if n == 0 {
			return false
		}
		if p.holders.CompareAndSwap(n, n+1) {
			return true
		}
	}
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
	p.zip.Do(func() { p.zipped = p.compressor.compress(p.body) })
	return p.zipped
}

// A compressor compresses pages, one at a time. It keeps its gzip writer, which takes about 1 MB to allocate.
//
// It uses the fastest level: for a page of 1.8 MB that takes a third of the time of the default level, and labels
// shrink twentyfold either way.
type compressor struct {
	mu     sync.Mutex
	writer *gzip.Writer
}

func (c *compressor) compress(body []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b bytes.Buffer
	b.Grow(len(body)/16 + 512)
	if c.writer == nil {
		c.writer, _ = gzip.NewWriterLevel(&b, gzip.BestSpeed) // fails only for unknown levels
	} else {
		c.writer.Reset(&b)
	}
	_, _ = c.writer.Write(body) // writing to memory cannot fail
	_ = c.writer.Close()
	c.writer.Reset(nil) // do not keep the page's bytes
	return b.Bytes()
}

// Pages holds the current page. The zero value has none. It is safe for concurrent use.
type Pages struct{ current atomic.Pointer[Page] }

// Publish makes p the current page, which expires after limit. Zero means never. Publish takes over the caller's hold
// on p. The caller must not share p before.
func (ps *Pages) Publish(p *Page, limit time.Duration) {
	if limit > 0 {
		p.expires = time.Now().Add(limit)
	}
	if old := ps.current.Swap(p); old != nil {
		old.Release()
	}
}

// Expired returns how long ago the current page expired. It returns zero or less if the page is still valid.
func (ps *Pages) Expired() time.Duration {
	p := ps.current.Load()
	if p == nil || p.expires.IsZero() {
		return 0
	}
	return time.Since(p.expires)
}

// Current returns the current page, which the caller must release. It returns nil before the first Publish and after
// the page has expired.
func (ps *Pages) Current() *Page {
	for {
		p := ps.current.Load()
		if p == nil || ps.Expired() > 0 {
			return nil
		}
		if p.tryHold() { // otherwise a newer page has replaced it
			return p
		}
	}
}
