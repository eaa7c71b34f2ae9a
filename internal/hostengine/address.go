// Package hostengine parses the addresses of DCGM host engines.
package hostengine

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// DefaultPort is the port of a host engine (DCGM_HE_PORT_NUMBER, dcgm_structs.h).
const DefaultPort = 5555

// Form describes the syntax of Parse for messages that end in "expected …".
const Form = "HOST[:PORT], [IPV6]:PORT, tcp://HOST:PORT, unix:///PATH or vsock://CID:PORT"

// A Transport is how a host engine is reached. The zero Transport is an engine in this process.
type Transport uint8

// The transports.
const (
	Embedded Transport = iota
	TCP
	Unix
	Vsock
)

// An Address is the address of a DCGM host engine. The zero Address is the engine embedded in this process.
type Address struct {
	Transport Transport
	Host      string // a name, an IP address without brackets, or a vsock context ID
	Port      uint16
	Path      string // absolute path of a unix socket
}

// Parse parses an address; Form describes the syntax. The port defaults to DefaultPort. The empty string is the
// embedded engine. Errors do not repeat the text; callers prefix it.
func Parse(text string) (Address, error) {
	if text == "" {
		return Address{}, nil
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "tcp", text
	}
	switch strings.ToLower(scheme) {
	case "tcp":
		return parseHostPort(TCP, rest)
	case "unix":
		if !strings.HasPrefix(rest, "/") || strings.ContainsRune(rest, 0) {
			return Address{}, errors.New("a unix address needs the socket's absolute path, as in unix:///run/dcgm.sock")
		}
		return Address{Transport: Unix, Path: rest}, nil
	case "vsock":
		return parseHostPort(Vsock, rest)
	default:
		return Address{}, fmt.Errorf("unknown scheme %q", scheme)
	}
}

// hostPort matches an address in brackets, or what can be a host name, an IPv4 address or a context ID, and a port. It
// allows underscores, since container names have them.
var hostPort = regexp.MustCompile(`^(?:\[(.*)\]|([a-zA-Z0-9_][a-zA-Z0-9._-]{0,252}))(?::(.*))?$`)

func parseHostPort(transport Transport, text string) (Address, error) {
	m := hostPort.FindStringSubmatch(text)
	switch {
	case isIPv6(text): // without brackets, ::1:5555 is an address without a port
		return Address{}, fmt.Errorf("write an IPv6 address in brackets, as in [%s]:%d", text, DefaultPort)
	case m == nil || strings.Contains(text, ","):
		return Address{}, fmt.Errorf("%q is not one host and port", text)
	case m[2] == "" && !isIPv6(m[1]):
		return Address{}, fmt.Errorf("%q is not an IPv6 address", m[1])
	}
	a := Address{Transport: transport, Host: cmp.Or(m[1], m[2]), Port: DefaultPort}
	if n, err := strconv.ParseUint(a.Host, 10, 32); transport == Vsock && (err != nil || fmt.Sprint(n) != a.Host) {
		return Address{}, fmt.Errorf("%q is not a context ID", a.Host)
	}
	if m[3] != "" || strings.HasSuffix(text, ":") {
		n, err := strconv.ParseUint(m[3], 10, 16)
		if err != nil || n == 0 {
			return Address{}, fmt.Errorf("%q is not a port", m[3])
		}
		a.Port = uint16(n)
	}
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

// String returns the address in the form of Parse, or "embedded" for the embedded engine.
func (a Address) String() string {
	switch a.Transport {
	case TCP:
		return a.Endpoint()
	case Unix:
		return "unix://" + a.Path
	case Vsock:
		return "vsock://" + a.Endpoint()
	default:
		return "embedded"
	}
}

// IsEmbedded reports whether the engine is in this process.
func (a Address) IsEmbedded() bool { return a.Transport == Embedded }

// Dial returns the network and address for package net. Both are empty for an embedded engine and for vsock.
func (a Address) Dial() (network, address string) {
	switch a.Transport {
	case TCP:
		return "tcp", a.Endpoint()
	case Unix:
		return "unix", a.Path
	default:
		return "", ""
	}
}

// Endpoint returns host:port of a TCP or vsock address, with brackets around an IPv6 address.
func (a Address) Endpoint() string { return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port))) }

// IP returns the IP address of a TCP host without its zone. It returns the zero Addr for host names.
func (a Address) IP() netip.Addr {
	ip, _ := netip.ParseAddr(a.Host)
	return ip.Unmap().WithZone("")
}

// IsLocal reports whether the address alone shows that the engine runs on this machine.
func (a Address) IsLocal() bool {
	switch a.Transport {
	case TCP:
		name := strings.ToLower(strings.TrimSuffix(a.Host, "."))
		return a.IP().IsLoopback() || name == "localhost" || strings.HasSuffix(name, ".localhost")
	case Vsock:
		return a.Host == "1" // VMADDR_CID_LOCAL
	default:
		return true
	}
}
