package dcgm

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// defaultPort is where a host engine listens (DCGM_HE_PORT_NUMBER).
const defaultPort = 5555

// transport is how an engine is reached.
type transport uint8

const (
	embedded transport = iota
	tcp
	unixSocket
	vsock
)

// An address says which engine to talk to. The zero address is the engine
// embedded in this process.
type address struct {
	transport transport
	host      string // name or address, without brackets; for vsock the context id
	port      uint16
	path      string // of a unix socket
}

// parseAddress reads the forms that --remote-hostengine-info takes: host,
// host:port, [v6]:port, tcp://host:port, unix:///path and vsock://cid:port.
// The empty text is the embedded engine.
func parseAddress(text string) (address, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		if text == "" {
			return address{}, nil
		}
		if strings.HasPrefix(text, "/") {
			return address{}, fmt.Errorf("engine address %q: a socket is written unix://%s", text, text)
		}
		return parseTCP(text, text)
	}
	switch strings.ToLower(scheme) {
	case "tcp":
		return parseTCP(text, rest)
	case "unix":
		if !strings.HasPrefix(rest, "/") || strings.ContainsRune(rest, 0) {
			return address{}, fmt.Errorf("engine address %q: want unix:// and an absolute path, for instance unix:///run/nvidia/dcgm.sock", text)
		}
		return address{transport: unixSocket, path: rest}, nil
	case "vsock":
		cid, portText, hasPort := strings.Cut(rest, ":")
		if n, err := strconv.ParseUint(cid, 10, 32); err != nil || strconv.FormatUint(n, 10) != cid {
			return address{}, fmt.Errorf("engine address %q: context id %q is no number, want vsock://cid:port", text, cid)
		}
		port, err := parsePort(text, portText, hasPort)
		if err != nil {
			return address{}, err
		}
		return address{transport: vsock, host: cid, port: port}, nil
	default:
		return address{}, fmt.Errorf("engine address %q: unknown scheme %q, want tcp, unix or vsock", text, scheme)
	}
}

func parseTCP(text, rest string) (address, error) {
	host, portText, hasPort := rest, "", false
	if after, ok := strings.CutPrefix(rest, "["); ok {
		inside, behind, closed := strings.Cut(after, "]")
		ip, err := netip.ParseAddr(inside)
		if !closed || err != nil || !ip.Is6() || behind != "" && behind[0] != ':' {
			return address{}, fmt.Errorf("engine address %q: want [IPv6 address]:port, for instance [::1]:%d", text, defaultPort)
		}
		host = inside
		portText, hasPort = strings.CutPrefix(behind, ":")
	} else if ip, err := netip.ParseAddr(rest); err != nil || !ip.Is6() {
		if strings.Count(rest, ":") > 1 {
			return address{}, fmt.Errorf("engine address %q: an IPv6 address with a port is written [address]:port", text)
		}
		host, portText, hasPort = strings.Cut(rest, ":")
		if !validHost(host) {
			return address{}, fmt.Errorf("engine address %q: %q is no host, want host:port", text, host)
		}
	}
	port, err := parsePort(text, portText, hasPort)
	if err != nil {
		return address{}, err
	}
	return address{transport: tcp, host: host, port: port}, nil
}

func parsePort(text, port string, given bool) (uint16, error) {
	if !given {
		return defaultPort, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("engine address %q: port %q, want a number from 1 to 65535", text, port)
	}
	return uint16(n), nil
}

// validHost reports whether a text can be a host name or an IPv4 address. It
// lets underscores pass, which names in containers have.
func validHost(host string) bool {
	if host == "" || len(host) > 253 {
		return false
	}
	for _, r := range host {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_') {
			return false
		}
	}
	return host[0] != '-' && host[0] != '.'
}

// String returns the address as parseAddress reads it, "embedded" for the
// embedded engine.
func (a address) String() string {
	switch a.transport {
	case tcp:
		return "tcp://" + a.endpoint()
	case unixSocket:
		return "unix://" + a.path
	case vsock:
		return "vsock://" + a.endpoint()
	default:
		return "embedded"
	}
}

// endpoint returns host:port, with brackets around an IPv6 address.
func (a address) endpoint() string {
	host := a.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(a.port))
}

// local reports whether the engine runs on this machine, and so shares its
// name and its clock.
func (a address) local() bool {
	switch a.transport {
	case tcp:
		if ip, err := netip.ParseAddr(a.host); err == nil {
			return ip.Unmap().IsLoopback()
		}
		name := strings.ToLower(strings.TrimSuffix(a.host, "."))
		return name == "localhost" || strings.HasSuffix(name, ".localhost")
	case vsock:
		return a.host == "1" // VMADDR_CID_LOCAL
	default:
		return true
	}
}

// hostname returns the name of the host that the engine runs on, empty if that
// is this machine or has no name here.
func (a address) hostname() string {
	if a.transport != tcp || a.local() {
		return ""
	}
	return a.host
}
