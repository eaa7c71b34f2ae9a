package podmapper

import (
	"context"
	"net"
)

// DialWith makes m reach the kubelet through dial in place of its socket, for a kubelet that is in
// this process. Call it before the first Attribute. The errors of dial are those of connecting to a
// socket.
func (m *Mapper) DialWith(dial func(context.Context) (net.Conn, error)) { m.kubelet.by = dial }

// reach connects to the kubelet.
func (k *kubelet) reach(ctx context.Context) (net.Conn, error) {
	if k.by != nil {
		return k.by(ctx)
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", k.socket)
}
