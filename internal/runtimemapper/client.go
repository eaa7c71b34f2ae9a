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

// DefaultSockets are the default sockets of Docker and Podman, in the order in which they are tried.
func DefaultSockets() []string {
	return []string{"/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"}
}

// ErrTooLarge means that an answer of the runtime exceeded its limit.
var ErrTooLarge = errors.New("answer too large")

// errGone means that the container no longer exists.
var errGone = errors.New("no such container")

// The limits of an answer, in bytes. A list entry takes about 1 KiB, and an inspected container about 10 KiB.
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

// inspected is the part of GET /containers/{id}/json that is used.
type inspected struct {
	Config struct {
		Env []string
	}
	HostConfig struct {
		// Runtime is Docker's name of the runtime. For Podman it is "oci".
		Runtime        string
		DeviceRequests []deviceRequest
		// Devices lists the nodes of --device. Podman also lists CDI devices.
		Devices []struct{ PathOnHost string }
	}
}

// deviceRequest is created by --gpus, or by --device with a CDI name.
type deviceRequest struct {
	Driver       string
	Count        int // -1 means all
	DeviceIDs    []string
	Capabilities [][]string
}

// connection queries one runtime during one cycle. It uses Docker's documented API
// (docs.docker.com/reference/api/engine), which Podman also implements. Every request has its own connection. There are
// two per cycle, and none outlives a restart of the daemon.
type connection struct {
	transport  *http.Transport
	prefix     string
	versionErr error // error of the version query; nil if the runtime answered
}

var versionForm = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,4}$`)

// connect finds the socket and the API version of its runtime. Requests without a version are deprecated, and no
// version is supported by every daemon. A proxy may reject the version query but allow the rest; then requests are
// sent without a version, with a warning.
func connect(ctx context.Context, sockets []string) (*connection, error) {
	at := slices.IndexFunc(sockets, func(socket string) bool {
		_, err := os.Stat(socket)
		return !errors.Is(err, fs.ErrNotExist) // connecting shows why a socket cannot be used
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
	if v := header.Get("Api-Version"); versionForm.MatchString(v) {
		conn.prefix = "/v" + v
	}
	conn.versionErr = err
	return conn, nil
}

// get sends a GET request and decodes the answer into into, unless that is nil. It follows no redirects.
func (c *connection) get(ctx context.Context, path string, limit int64, into any) (http.Header, error) {
	path = c.prefix + path
	// The host is not used, but daemons reject requests without one.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, gpu.WrapFSError(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, gpu.WrapFSError(err)
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

// ownMount matches a line of mountinfo (proc_pid_mountinfo(5)) in a container. Its fourth field is the path on the
// mounted file system, and the fifth is the mount point. Runtimes mount these files from the container's own folder.
// Its path contains the ID: …/containers/ID/hostname for Docker, …/overlay-containers/ID/userdata/hostname for Podman.
var ownMount = regexp.MustCompile(
	`(?m)^(?:\S+ ){3}(?:\S*/)?([0-9a-f]{64})(?:/\S*)? /etc/(?:hostname|hosts|resolv\.conf) `)

// containerOf returns the id of the container whose mountinfo this is, or "" if it is unknown.
func containerOf(mountinfo []byte) string {
	if found := ownMount.FindSubmatch(mountinfo); found != nil {
		return string(found[1])
	}
	return ""
}
