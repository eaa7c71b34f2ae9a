package dcgm

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseAddress(t *testing.T) {
	type want struct {
		Text, Host string
		Local      bool
	}
	for text, w := range map[string]want{
		"":                             {"embedded", "", true},
		"localhost:5555":               {"tcp://localhost:5555", "", true},
		"nvidia-dcgm:5555":             {"tcp://nvidia-dcgm:5555", "nvidia-dcgm", false},
		"nvidia-dcgm":                  {"tcp://nvidia-dcgm:5555", "nvidia-dcgm", false},
		"127.8.9.10:1":                 {"tcp://127.8.9.10:1", "", true},
		"10.1.2.3:65535":               {"tcp://10.1.2.3:65535", "10.1.2.3", false},
		"::1":                          {"tcp://[::1]:5555", "", true},
		"[::1]:5556":                   {"tcp://[::1]:5556", "", true},
		"[2001:db8::2]":                {"tcp://[2001:db8::2]:5555", "2001:db8::2", false},
		"[::ffff:127.0.0.1]:5555":      {"tcp://[::ffff:127.0.0.1]:5555", "", true},
		"tcp://Gpu.Example.com.:5555":  {"tcp://Gpu.Example.com.:5555", "Gpu.Example.com.", false},
		"TCP://my_host":                {"tcp://my_host:5555", "my_host", false},
		"unix:///run/nvidia/dcgm.sock": {"unix:///run/nvidia/dcgm.sock", "", true},
		"vsock://3":                    {"vsock://3:5555", "", false},
		"vsock://2:6666":               {"vsock://2:6666", "", false},
	} {
		a, err := parseAddress(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(w, want{a.String(), a.hostname(), a.local()}); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// What cannot be an address is said in one sentence that names it.
func TestParseAddressRefuses(t *testing.T) {
	for text, word := range map[string]string{
		"host:":              "1 to 65535",
		"host:0":             "1 to 65535",
		"host:65536":         "1 to 65535",
		"host:dcgm":          "1 to 65535",
		"host:55:55":         "[address]:port",
		":5555":              "no host",
		"a host:5555":        "no host",
		"-o:5555":            "no host",
		"[::1":               "[::1]:5555",
		"[::1]5555":          "[::1]:5555",
		"[10.0.0.1]:5555":    "[::1]:5555",
		"[host]:5555":        "[::1]:5555",
		"http://host:5555":   "tcp, unix or vsock",
		"/run/dcgm.sock":     "unix:///run/dcgm.sock",
		"unix://run/dcgm":    "absolute path",
		"unix://":            "absolute path",
		"vsock://host:5555":  "context id",
		"vsock://3:x":        "1 to 65535",
		"vsock://4294967296": "context id",
		"tcp://":             "no host",
	} {
		_, err := parseAddress(text)
		if err == nil {
			t.Errorf("%q is accepted", text)
			continue
		}
		if !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q does not name it and %q", text, err, word)
		}
	}
}

// Whatever is accepted is written in one way that means the same.
func FuzzParseAddress(f *testing.F) {
	for _, text := range []string{"", "h:1", "[::1]:2", "tcp://x", "unix:///a", "vsock://1:2", "::1", "a:b:c", "[", "unix://\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAddress(text)
		if err != nil {
			if a != (address{}) {
				t.Errorf("%q: an error and an address", text)
			}
			return
		}
		if a.transport == embedded {
			if text != "" {
				t.Errorf("%q is the embedded engine", text)
			}
			return
		}
		again, err := parseAddress(a.String())
		if err != nil || again != a {
			t.Errorf("%q is %q, which reads as %+v, %v", text, a, again, err)
		}
		if a.transport == tcp {
			host, _, err := net.SplitHostPort(a.endpoint())
			if err != nil || host != a.host {
				t.Errorf("%q: endpoint %q: %v", text, a.endpoint(), err)
			}
		}
	})
}

func TestOptionsCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		opt  Options
		word string
	}{
		"zero":    {Options{}, ""},
		"level":   {Options{EngineLog: "DEBUG"}, ""},
		"address": {Options{Remote: "host:x"}, "port"},
		"timeout": {Options{ConnectTimeout: -1}, "negative"},
		"words":   {Options{EngineLog: "loud"}, "NONE, FATAL, ERROR, WARN, INFO, DEBUG, VERB"},
	} {
		err := tt.opt.Check()
		if (err == nil) != (tt.word == "") || err != nil && !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: %v, want %q", name, err, tt.word)
		}
	}
}
