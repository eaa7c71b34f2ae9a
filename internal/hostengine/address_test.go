package hostengine_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
)

func TestParse(t *testing.T) {
	type want struct {
		Text    string
		Address hostengine.Address
		Local   bool
	}
	tcp := func(host string, port uint16) hostengine.Address {
		return hostengine.Address{Transport: hostengine.TCP, Host: host, Port: port}
	}
	vsock := func(cid string, port uint16) hostengine.Address {
		return hostengine.Address{Transport: hostengine.Vsock, Host: cid, Port: port}
	}
	for text, w := range map[string]want{
		"":                            {"embedded", hostengine.Address{}, true},
		"localhost:5555":              {"localhost:5555", tcp("localhost", 5555), true},
		"a.localhost.":                {"a.localhost.:5555", tcp("a.localhost.", 5555), true},
		"nvidia-dcgm:5556":            {"nvidia-dcgm:5556", tcp("nvidia-dcgm", 5556), false},
		"nvidia-dcgm":                 {"nvidia-dcgm:5555", tcp("nvidia-dcgm", 5555), false},
		"127.8.9.10:1":                {"127.8.9.10:1", tcp("127.8.9.10", 1), true},
		"10.1.2.3:65535":              {"10.1.2.3:65535", tcp("10.1.2.3", 65535), false},
		"[::1]:5556":                  {"[::1]:5556", tcp("::1", 5556), true},
		"[2001:db8::2]":               {"[2001:db8::2]:5555", tcp("2001:db8::2", 5555), false},
		"[fe80::1%eth0]:5555":         {"[fe80::1%eth0]:5555", tcp("fe80::1%eth0", 5555), false},
		"[fe80::1%br-1.2]":            {"[fe80::1%br-1.2]:5555", tcp("fe80::1%br-1.2", 5555), false},
		"[::1%lo]:5555":               {"[::1%lo]:5555", tcp("::1%lo", 5555), true},
		"[::ffff:127.0.0.1]:5555":     {"[::ffff:127.0.0.1]:5555", tcp("::ffff:127.0.0.1", 5555), true},
		"tcp://Gpu.Example.com.:5555": {"Gpu.Example.com.:5555", tcp("Gpu.Example.com.", 5555), false},
		"TCP://my_host":               {"my_host:5555", tcp("my_host", 5555), false},
		"unix:///run/nvidia/dcgm.sock": {"unix:///run/nvidia/dcgm.sock",
			hostengine.Address{Transport: hostengine.Unix, Path: "/run/nvidia/dcgm.sock"}, true},
		"unix:///run/a,b.sock": {"unix:///run/a,b.sock",
			hostengine.Address{Transport: hostengine.Unix, Path: "/run/a,b.sock"}, true},
		"vsock://3":      {"vsock://3:5555", vsock("3", 5555), false},
		"vsock://2:6666": {"vsock://2:6666", vsock("2", 6666), false},
		"vsock://1:6666": {"vsock://1:6666", vsock("1", 6666), true},
	} {
		a, err := hostengine.Parse(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(w, want{a.String(), a, a.IsLocal()}); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestParseRejects(t *testing.T) {
	for text, word := range map[string]string{
		"host:": `"" is not a port`, "host:0": `"0" is not a port`, "host:65536": `"65536" is not a port`,
		"host:dcgm": `"dcgm" is not a port`, "host:55:55": `"55:55" is not a port`,
		":5555": `":5555" is not one host and port`, "a host:5555": "is not one host and port",
		"höst": "is not one host and port", "-o:5555": "is not one host and port", "::1": "brackets, as in [::1]:5555",
		"::1:5555": "brackets", "fe80::1%eth0": "brackets, as in [fe80::1%eth0]:5555",
		"[::1": "is not one host and port", "[::1]5555": "is not one host and port", "[::1]:": `"" is not a port`,
		"[]:5555": `"" is not an IPv6 address`, "[10.0.0.1]:5555": `"10.0.0.1" is not an IPv6 address`,
		"[host]:5555": `"host" is not an IPv6 address`, "[fe80::1%]:5555": "not an IPv6 address",
		"[fe80::1%a b]:5555": "not an IPv6 address", "[fe80::1%a/b]:5555": "not an IPv6 address",
		"[fe80::1%sixteen-letters-]:55": "not an IPv6 address",
		"http://host:5555":              `unknown scheme "http"`,
		"/run/dcgm.sock":                "is not one host and port", "unix:/run/dcgm.sock": `"/run/dcgm.sock" is not a port`,
		"dcgm-1:5555,dcgm-2:5555": "is not one host and port",
		"unix://run/dcgm":         "absolute path",
		"unix://":                 "absolute path",
		"vsock://host:5555":       `"host" is not a context ID`,
		"vsock://[::1]:5555":      `"::1" is not a context ID`,
		"vsock://007:5555":        `"007" is not a context ID`,
		"vsock://3:x":             `"x" is not a port`,
		"vsock://4294967296":      "not a context ID",
		"tcp://":                  `"" is not one host and port`,
		"tcp://10.0.0.1/24":       "is not one host and port",
	} {
		a, err := hostengine.Parse(text)
		if err == nil {
			t.Errorf("%q was accepted as %+v, want an error", text, a)
			continue
		}
		if !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n") || a != (hostengine.Address{}) {
			t.Errorf("%q: error = %q and address = %+v; want %q and no address", text, err, a, word)
		}
	}
}

// FuzzParse checks that an accepted address has one written form with the same meaning. Its parts must
// agree with package net and fit in a C string.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "h:1", "[::1]:2", "tcp://x", "unix:///a", "vsock://1:2", "::1", "a:b:c", "[",
		"unix://\x00",
		"[fe80::1%eth0]:5555", "höst", "[fe80::1%25eth0]", "1.2.3.4:5", "[::ffff:1.2.3.4]", "tcp://unix://x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := hostengine.Parse(text)
		if err != nil {
			if a != (hostengine.Address{}) {
				t.Errorf("%q: address = %+v with error %v, want no address", text, a, err)
			}
			return
		}
		if (a == hostengine.Address{}) != (text == "") {
			t.Errorf("%q: address = %+v, want the zero value only for an empty text", text, a)
		}
		if text == "" {
			return
		}
		again, err := hostengine.Parse(a.String())
		if err != nil || again != a {
			t.Errorf("%q is written as %q, which is parsed as %+v, %v; want the same address", text, a, again, err)
		}
		if strings.ContainsRune(a.String(), 0) {
			t.Errorf("%q is written as %q, want no NUL byte", text, a)
		}
		if a.Transport != hostengine.TCP {
			return
		}
		host, port, err := net.SplitHostPort(a.Endpoint())
		if err != nil || host != a.Host || port == "0" {
			t.Errorf("%q: endpoint %q = host %q, port %q, error %v; want host %q and a port", text, a.Endpoint(), host,
				port, err, a.Host)
		}
		if _, err := netip.ParseAddrPort(a.Endpoint()); (err == nil) != a.IP().IsValid() {
			t.Errorf("%q: parsing endpoint %q as an IP address: %v, but IP() = %v", text, a.Endpoint(), err, a.IP())
		}
		if strings.ContainsAny(a.Host, " \t\n/\x00") {
			t.Errorf("%q: host = %q, want no blank, slash or NUL", text, a.Host)
		}
	})
}
