package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// connections limits the open connections of its listeners. A connection above the limit replaces the one that has been
// idle longest, so that clients that only hold connections cannot block scrapes and probes.
type connections struct {
	most  int
	begin time.Time // the origin of used; has a monotonic reading

	mu   sync.Mutex
	open map[*connection]bool
}

func newConnections(most int) *connections {
	return &connections{most: most, begin: time.Now(), open: map[*connection]bool{}}
}

// listener returns l with the limit applied.
func (c *connections) listener(l net.Listener) net.Listener { return &limitedListener{l, c} }

// add adds a connection, and closes the one idle longest if there are too many.
func (c *connections) add(conn net.Conn) net.Conn {
	added := &connection{Conn: conn, of: c}
	added.touch()
	c.mu.Lock()
	var longest *connection
	if len(c.open) >= c.most {
		for other := range c.open {
			if longest == nil || other.used.Load() < longest.used.Load() {
				longest = other
			}
		}
		delete(c.open, longest)
	}
	c.open[added] = true
	c.mu.Unlock()
	if longest != nil {
		_ = longest.Conn.Close() // ignore the error: it may be closed already
	}
	return added
}

func (c *connections) remove(conn *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

type limitedListener struct {
	net.Listener
	connections *connections
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.connections.add(conn), nil
}

// connection records when it was last used.
type connection struct {
	net.Conn
	of   *connections
	used atomic.Int64 // nanoseconds since of.begin
}

func (c *connection) touch() { c.used.Store(int64(time.Since(c.of.begin))) }

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.touch()
	}
	return n, err
}

// Write implements net.Conn.
func (c *connection) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n > 0 {
		c.touch()
	}
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.remove(c)
	return c.Conn.Close()
}
