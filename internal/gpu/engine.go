package gpu

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// EnginePort is the default port of a host engine (DCGM_HE_PORT_NUMBER, dcgm_structs.h).
const EnginePort = 5555

// EngineAddressForm describes the syntax of ParseEngineAddress for messages that end in "expected …".
const EngineAddressForm = "HOST[:PORT], [IPV6]:PORT, tcp://HOST:PORT, unix:///PATH or vsock://CID:PORT"

// A Transport is how a host engine is reached. The zero Transport is an engine in this process.
type Transport uint8

// The transports.
const (
	TransportNone Transport = iota
	TransportTCP
	TransportUnix
	TransportVsock
)

// An EngineAddress is the address of a DCGM host engine. The zero EngineAddress is the engine embedded in this process.
type EngineAddress struct {
	Transport Transport
	Host      string // a name, an IP address without brackets, or a vsock context ID
	Port      uint16
	Path      string // absolute path of a unix socket
}

// ParseEngineAddress parses an address in the form EngineAddressForm. The port defaults to EnginePort. The empty
// string is the embedded engine. Errors do not repeat the text; callers prefix it.
func ParseEngineAddress(text string) (EngineAddress, error) {
	if text == "" {
		return EngineAddress{}, nil
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		if path := strings.TrimPrefix(text, "unix:"); strings.HasPrefix(path, "/") {
			return EngineAddress{}, fmt.Errorf("write the socket as unix://%s", path)
		}
		return parseTCP(text)
	}
	switch strings.ToLower(scheme) {
	case "tcp":
		return parseTCP(rest)
	case "unix":
		if !strings.HasPrefix(rest, "/") || strings.ContainsRune(rest, 0) {
			return EngineAddress{}, errors.New("a unix address needs the socket's absolute path, as in unix:///run/dcgm.sock")
		}
		return EngineAddress{Transport: TransportUnix, Path: rest}, nil
	case "vsock":
		cid, port, hasPort := strings.Cut(rest, ":")
		if n, err := strconv.ParseUint(cid, 10, 32); err != nil || strconv.FormatUint(n, 10) != cid {
			return EngineAddress{}, fmt.Errorf("%q is not a context ID", cid)
		}
		return withPort(EngineAddress{Transport: TransportVsock, Host: cid}, port, hasPort)
	default:
		return EngineAddress{}, fmt.Errorf("unknown scheme %q", scheme)
	}
}

func parseTCP(text string) (EngineAddress, error) {
	if several := strings.Count(text, ",") + 1; several > 1 {
		return EngineAddress{}, fmt.Errorf("expected one host engine, found a list of %d", several)
	}
	if after, ok := strings.CutPrefix(text, "["); ok {
		host, behind, closed := strings.Cut(after, "]")
		port, hasPort := strings.CutPrefix(behind, ":")
		switch {
		case !closed || behind != "" && !hasPort:
			return EngineAddress{}, fmt.Errorf("write an IPv6 address and its port as in [::1]:%d", EnginePort)
		case !isIPv6(host):
			return EngineAddress{}, fmt.Errorf("%q is not an IPv6 address", host)
		}
		return withPort(EngineAddress{Transport: TransportTCP, Host: host}, port, hasPort)
	}
	// Without brackets, ::1:5555 is an address without a port.
	if isIPv6(text) {
		return EngineAddress{}, fmt.Errorf("write an IPv6 address in brackets, as in [%s]:%d", text, EnginePort)
	}
	host, port, hasPort := strings.Cut(text, ":")
	if !isHost(host) {
		return EngineAddress{}, fmt.Errorf("%q is not a host name (letters a-z, digits, and - . _)", host)
	}
	return withPort(EngineAddress{Transport: TransportTCP, Host: host}, port, hasPort)
}

func withPort(a EngineAddress, text string, given bool) (EngineAddress, error) {
	a.Port = EnginePort
	if !given {
		return a, nil
	}
	if text == "" {
		return EngineAddress{}, errors.New("the port is missing")
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return EngineAddress{}, fmt.Errorf("%q is not a port", text)
	}
	a.Port = uint16(n)
	return a, nil
}

// isIPv6 reports whether text is an IPv6 address. A zone must be a valid interface name (dev_valid_name in Linux's
// net/core/dev.c: at most 15 bytes, no space and no slash).
func isIPv6(text string) bool {
	ip, err := netip.ParseAddr(text)
	if err != nil || !ip.Is6() || len(ip.Zone()) > 15 {
		return false
	}
	return !strings.ContainsFunc(ip.Zone(), func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == '%' })
}

// isHost reports whether text can be a host name or an IPv4 address. It allows underscores, since container names
// have them.
func isHost(text string) bool {
	if text == "" || len(text) > 253 || text[0] == '-' || text[0] == '.' {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	})
}

// String returns the address in the form of ParseEngineAddress, or "embedded" for the embedded engine.
func (a EngineAddress) String() string {
	switch a.Transport {
	case TransportTCP:
		return a.Endpoint()
	case TransportUnix:
		return "unix://" + a.Path
	case TransportVsock:
		return "vsock://" + a.Endpoint()
	default:
		return "embedded"
	}
}

// IsEmbedded reports whether the engine is in this process.
func (a EngineAddress) IsEmbedded() bool { return a.Transport == TransportNone }

// Dial returns the network and address for package net. Both are empty for an embedded engine and for vsock.
func (a EngineAddress) Dial() (network, address string) {
	switch a.Transport {
	case TransportTCP:
		return "tcp", a.Endpoint()
	case TransportUnix:
		return "unix", a.Path
	default:
		return "", ""
	}
}

// Endpoint returns host:port of a TCP or vsock address, with brackets around an IPv6 address.
func (a EngineAddress) Endpoint() string {
	return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
}

// IP returns the IP address of the host without its zone. It returns the zero Addr for host names and for transports
// other than TCP.
func (a EngineAddress) IP() netip.Addr {
	if a.Transport != TransportTCP {
		return netip.Addr{}
	}
	ip, _ := netip.ParseAddr(a.Host) // the zero Addr if Host is a name
	return ip.Unmap().WithZone("")
}

// IsLocal reports whether the address alone shows that the engine runs on this machine.
func (a EngineAddress) IsLocal() bool {
	switch a.Transport {
	case TransportTCP:
		name := strings.ToLower(strings.TrimSuffix(a.Host, "."))
		return a.IP().IsLoopback() || name == "localhost" || strings.HasSuffix(name, ".localhost")
	case TransportVsock:
		return a.Host == "1" // VMADDR_CID_LOCAL
	default:
		return true
	}
}
