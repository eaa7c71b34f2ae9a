package runtimemapper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// DefaultSockets are where Docker and Podman listen unless configured otherwise, in the order in
// which they are looked for.
func DefaultSockets() []string {
	return []string{"/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"}
}

// ErrTooLarge says that an answer of the runtime was over its limit.
var ErrTooLarge = errors.New("answer too large")

// errGone says that the container is not there any more.
var errGone = errors.New("no such container")

// The limits of an answer, in bytes. An entry of the list takes about 1 KiB, an inspected container
// about 10 KiB.
const (
	maxList    = 16 << 20
	maxInspect = 2 << 20
)

// listed is an element of GET /containers/json.
type listed struct {
	ID     string `json:"Id"`
	Names  []string
	Labels map[string]string
}

// inspected is the answer of GET /containers/{id}/json, as far as it is used.
type inspected struct {
	Config struct {
		Env []string
	}
	HostConfig struct {
		// Runtime is Docker's name of the runtime; Podman says "oci".
		Runtime        string
		DeviceRequests []deviceRequest
		// Devices are the nodes of --device. Podman lists those of CDI too.
		Devices []struct{ PathOnHost string }
	}
}

// A deviceRequest is made of --gpus, and of --device with a CDI name.
type deviceRequest struct {
	Driver       string
	Count        int // -1: all
	DeviceIDs    []string
	Capabilities [][]string
}

// A connection queries one runtime for one cycle, in its version of the API that Docker documents
// and Podman plays as well (docs.docker.com/reference/api/engine). Every request has a connection of
// its own: two in a cycle, and nothing that outlives a restart of the daemon.
type connection struct {
	transport *http.Transport
	prefix    string
	mute      error // why the runtime does not say its version, nil where it does
}

var versionForm = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,4}$`)

// connect finds the socket, and the version of the API that its runtime speaks: a request without a
// version is deprecated, and none is spoken by every daemon. A proxy before the socket may refuse
// to say the version, and answer the rest: then requests go without one, and the warning says so.
func connect(ctx context.Context, sockets []string) (*connection, error) {
	at := slices.IndexFunc(sockets, func(socket string) bool {
		_, err := os.Stat(socket)
		return !errors.Is(err, fs.ErrNotExist) // connecting says why one may not be seen
	})
	if at < 0 {
		return nil, fmt.Errorf("%w: no container runtime at %s", gpu.ErrUnavailable, strings.Join(sockets, ", "))
	}
	socket := sockets[at]
	conn := &connection{transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}}
	header, err := conn.get(ctx, "/_ping", maxInspect, nil)
	if errors.Is(err, gpu.ErrUnavailable) || errors.Is(err, gpu.ErrTimeout) || errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("container runtime at %s: %w", socket, err)
	}
	if conn.mute = err; err != nil {
		return conn, nil
	}
	if v := header.Get("Api-Version"); versionForm.MatchString(v) {
		conn.prefix = "/v" + v
	}
	return conn, nil
}

// get decodes the answer to a GET into into, if that is not nil. It follows no redirect.
func (c *connection) get(ctx context.Context, path string, limit int64, into any) (http.Header, error) {
	path = c.prefix + path
	// The host is not used; daemons refuse a request without one.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, gpu.Typed(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, gpu.Typed(err)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("GET %s: %w: more than %d bytes", path, ErrTooLarge, limit)
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("GET %s: %w", path, errGone)
	case resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("GET %s: %w: %s", path, gpu.ErrPermission, resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	if into != nil {
		if err := json.Unmarshal(body, into); err != nil {
			return nil, fmt.Errorf("GET %s: %w", path, err)
		}
	}
	return resp.Header, nil
}
