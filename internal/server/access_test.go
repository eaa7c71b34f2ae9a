package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/selfsigned"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// users returns a web configuration section that admits the user scraper with the password secret.
func users(t *testing.T) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("basic_auth_users:\n  scraper: %q\n", hash)
}

// Profiles are served to authenticated clients. If authentication is off, they are served to local clients.
func TestProtectedEndpoints(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	web := func(name, text string) string { return write(t, filepath.Join(dir, name), text) }
	passwords, encrypted := web("passwords.yml", users(t)), web("tls.yml", certificates)
	unchecked := web("any.yml", certificates+"  client_auth_type: RequireAnyClientCert\n")
	verified := web("verified.yml", certificates+"  client_ca_file: cert.pem\n  client_auth_type: RequireAndVerifyClientCert\n")
	for _, tt := range []struct {
		address, config string
		anyone          bool
	}{
		{"127.0.0.1:9400", "", true}, {"127.9.9.9:1", "", true}, {"localhost:9400", "", true}, {"[::1]:9400", "", true},
		{"[::ffff:127.0.0.1]:1", "", true}, {":9400", "", false}, {"0.0.0.0:9400", "", false}, {"[::]:9400", "", false},
		{"10.0.0.1:9400", "", false}, {"host:9400", "", false}, {"systemd", "", false},
		{"127.0.0.1:9400", passwords, false}, {":9400", passwords, false},
		{"127.0.0.1:9400", encrypted, true}, {":9400", encrypted, false},
		{"127.0.0.1:9400", unchecked, true}, {":9400", unchecked, false}, // accepts client certificates of any issuer
		{"127.0.0.1:9400", verified, false}, {":9400", verified, false},
	} {
		h := newServer(t, server.Options{Address: tt.address, SystemdSocket: tt.address == "systemd", ConfigFile: tt.config, Pprof: true}).Handler()
		want := 403
		if tt.anyone {
			want = 200
		}
		if res := do(t, h, "GET", "/debug/pprof/cmdline"); res.StatusCode != want {
			t.Errorf("%s with %q: status %d, want %d", tt.address, filepath.Base(tt.config), res.StatusCode, want)
		}
		proven := do(t, h, "GET", "/debug/pprof/cmdline", "Authorization", "Basic c2NyYXBlcjpzZWNyZXQ=").StatusCode == 200
		if proven != (tt.anyone || tt.config == passwords) {
			t.Errorf("%s with %q: request with a password admitted = %t, want %t", tt.address, filepath.Base(tt.config), proven, !proven)
		}
	}
}

// reload applies the current content of the web configuration file.
func reload(s *server.Server) error {
	apply, err := s.LoadWebConfig()
	if err != nil {
		return err
	}
	return apply()
}

const certificates = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"

// Every request is checked, because a connection opened before certificates were required has none.
func TestOldConnectionHasNoCertificate(t *testing.T) {
	dir := t.TempDir()
	roots := certificate(t, dir)
	file := write(t, filepath.Join(dir, "web.yml"), certificates+users(t))
	s := serve(t, server.Options{Pprof: true, ConfigFile: file})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(client.CloseIdleConnections)
	answers := func(path string, want int) {
		t.Helper()
		if status, _ := get(t, client, "https://"+path); status != want {
			t.Errorf("%s: status %d, want %d", path, status, want)
		}
	}
	protected := s.address + "/debug/pprof/cmdline"
	answers("scraper:secret@"+protected, 200)
	answers(protected, 401)
	write(t, file, certificates+"  client_ca_file: cert.pem\n  client_auth_type: RequireAndVerifyClientCert\n")
	if err := reload(s.Server); err != nil {
		t.Fatal(err)
	}
	answers("scraper:secret@"+protected, 403)
	answers(s.address+"/metrics", 200)
	client.CloseIdleConnections()
	if _, err := client.Get("https://" + s.address + "/metrics"); err == nil {
		t.Error("new connection without a certificate was accepted, want it rejected")
	}
}

// records is a log handler that sends each record to a channel.
type records chan slog.Record

func (r records) Enabled(context.Context, slog.Level) bool           { return true }
func (r records) Handle(_ context.Context, record slog.Record) error { r <- record; return nil }
func (r records) WithAttrs([]slog.Attr) slog.Handler                 { return r }
func (r records) WithGroup(string) slog.Handler                      { return r }

// A TCP probe of a TLS listener is not worth a warning. A client that does not speak TLS is.
func TestHandshakeErrors(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	logged := make(records, 16)
	address := start(t, server.Options{Log: slog.New(logged), ConfigFile: write(t, filepath.Join(dir, "web.yml"), certificates)})
	for sent, want := range map[string]slog.Level{"": slog.LevelDebug, "hello\r\n\r\n": slog.LevelWarn} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(sent)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		for record := range logged {
			if !strings.Contains(record.Message, "handshake") {
				continue
			}
			if record.Level != want {
				t.Errorf("connection that sends %q: log level = %v, want %v: %s", sent, record.Level, want, record.Message)
			}
			break
		}
	}
}

// If the file becomes invalid or disappears, the last valid configuration stays in effect.
func TestBrokenWebConfigChangesNothing(t *testing.T) {
	dir := t.TempDir()
	roots := certificate(t, dir)
	config := certificates + users(t)
	file := write(t, filepath.Join(dir, "web.yml"), config)
	s := serve(t, server.Options{ConfigFile: file})
	if diff := cmp.Diff([]string{"cert.pem", "key.pem", "web.yml"}, names(s.WebFiles())); diff != "" {
		t.Errorf("files to watch (-want +got):\n%s", diff)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	check := func(when string) {
		t.Helper()
		for user, want := range map[string]int{"scraper:secret@": 200, "scraper:other@": 401, "": 401} {
			if status, _ := get(t, client, "https://"+user+s.address+"/metrics"); status != want {
				t.Errorf("%s: status %d for %q, want %d", when, status, user, want)
			}
		}
	}
	check("at the start")
	for when, change := range map[string]func(){
		"unknown key": func() { _ = os.Remove(file); write(t, file, "no_such_key: 1\n") },
		"no file":     func() { _ = os.Remove(file) },
		"a pipe": func() {
			_ = os.Remove(file)
			if err := syscall.Mkfifo(file, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"no certificate": func() { _ = os.Remove(file); write(t, file, config); _ = os.Remove(filepath.Join(dir, "cert.pem")) },
	} {
		certificate(t, t.TempDir()) // a certificate in a folder that is not used
		change()
		if err := reload(s.Server); err == nil || !strings.Contains(err.Error(), "--web-config-file "+file) {
			t.Errorf("%s: LoadWebConfig = %v, want an error that names the file", when, err)
		}
		check(when)
		if when == "no certificate" {
			roots = certificate(t, dir)
			client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
			write(t, file, config)
			if err := reload(s.Server); err != nil {
				t.Errorf("reload after the repair: %v, want success", err)
			}
			check("a renewed certificate")
		}
	}
}

func names(files []string) (list []string) {
	for _, f := range files {
		list = append(list, filepath.Base(f))
	}
	slices.Sort(list)
	return list
}

// A page of another site cannot start profiling, even on loopback.
func TestProfilesAreNotForOtherSites(t *testing.T) {
	h := newServer(t, server.Options{Address: "127.0.0.1:9400", Pprof: true}).Handler()
	for site, want := range map[string]int{"cross-site": 403, "same-origin": 200, "none": 200} {
		if res := do(t, h, "GET", "/debug/pprof/cmdline", "Sec-Fetch-Site", site); res.StatusCode != want {
			t.Errorf("Sec-Fetch-Site %s: status %d, want %d", site, res.StatusCode, want)
		}
	}
}

// certificate writes cert.pem and key.pem for 127.0.0.1 to dir. It returns a pool that trusts the certificate.
func certificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	cert, key := selfsigned.Pair(t)
	write(t, filepath.Join(dir, "cert.pem"), cert)
	write(t, filepath.Join(dir, "key.pem"), key)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(cert))
	return pool
}

// systemdChild marks the process that TestSystemdSocket starts.
const systemdChild = "SERVER_TEST_SYSTEMD_CHILD"

// systemd passes a socket as file 3, and names the process in the environment (sd_listen_fds(3)).
func TestSystemdSocket(t *testing.T) {
	if os.Getenv(systemdChild) != "" {
		pages, asked := serving([]byte("opening 1\n")), 0
		s := newServer(t, server.Options{SystemdSocket: true, Current: pages.Current, Ready: func() bool {
			if asked++; asked == 3 {
				pages.Publish(exposition.NewPage([]byte("up 1\n")), 0)
			}
			return asked >= 3
		}})
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run='^TestSystemdSocket$'`, os.Args[0])
	cmd.Env = append(os.Environ(), systemdChild+"=1", "LISTEN_FDS=1")
	cmd.ExtraFiles = []*os.File{socket}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	client := &http.Client{Timeout: 30 * time.Second} // the socket queues connections until the child accepts them
	url := "http://" + l.Addr().String() + "/metrics"
	if _, page := get(t, client, url); page != "up 1\n" {
		t.Errorf("the scrape that started the process got %q, want the page of the first cycle", page)
	}
	if status, _ := get(t, client, url, "Host", "evil.example"); status != 421 {
		t.Errorf("a rebound name on a loopback socket of systemd: status %d, want 421", status)
	}
}

func TestMissingSystemdSocket(t *testing.T) {
	t.Setenv("LISTEN_PID", "")
	err := newServer(t, server.Options{SystemdSocket: true}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--web-systemd-socket") {
		t.Errorf("Run = %v, want an error that names the setting", err)
	}
}

// If the exporter listens only on loopback, DNS rebinding does not help another site: its pages can neither read nor
// control anything.
func TestHostOfALoopbackListener(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	local := newServer(t, ordered(server.Options{Address: "127.0.0.1:9400", Lifecycle: true}, new(recorder))).Handler()
	open := newServer(t, server.Options{Address: ":9400"}).Handler()
	for host, own := range map[string]bool{
		"localhost": true, "localhost:9400": true, "LOCALHOST.:9400": true, "gpu.localhost:80": true,
		"127.0.0.1": true, "127.0.0.1:9400": true, "127.9.9.9:1": true, "[::1]:9400": true, "[::1]": true, "10.1.2.3:9400": true,
		machine + ":9400": true, "": true,
		"evil.example": false, "evil.example:9400": false, "localhost.evil.example": false, "127.0.0.1.evil.example:9400": false,
		"notlocalhost": false, "x" + machine: false,
	} {
		want := 421
		if own {
			want = 200
		}
		for _, route := range [][2]string{{"GET", "/metrics"}, {"GET", "/health"}, {"POST", "/-/reload"}} {
			if res := do(t, local, route[0], route[1], "Host", host); res.StatusCode != want {
				t.Errorf("%s %s with Host %q: status %d, want %d", route[0], route[1], host, res.StatusCode, want)
			}
		}
		if res := do(t, open, "GET", "/metrics", "Host", host); res.StatusCode != 200 {
			t.Errorf("Host %q, listening on all addresses: status %d, want 200", host, res.StatusCode)
		}
	}
}

// Request headers are limited in size.
func TestHeaderLimit(t *testing.T) {
	address := start(t, server.Options{})
	for size, want := range map[int]int{16 << 10: 200, 256 << 10: 431} {
		large := strings.Repeat("x", size)
		if got, _ := get(t, http.DefaultClient, "http://"+address+"/metrics", "X-Large", large); got != want {
			t.Errorf("header of %d bytes: status %d, want %d", size, got, want)
		}
	}
}

// recorder counts the reloads of a server and returns err.
type recorder struct {
	calls int
	err   error
}

// ordered returns o with the function of r.
func ordered(o server.Options, r *recorder) server.Options {
	o.Reload = func(ctx context.Context) error {
		r.calls++
		return errors.Join(r.err, ctx.Err())
	}
	return o
}

func TestReloadAnswers(t *testing.T) {
	for err, want := range map[error]string{
		nil:                         "200 reloaded\n",
		errors.New("what is wrong"): "500 nothing changed: what is wrong\n",
	} {
		r := &recorder{err: err}
		h := newServer(t, ordered(server.Options{Lifecycle: true, Address: "127.0.0.1:9400"}, r)).Handler()
		res := do(t, h, "POST", "/-/reload")
		if got := fmt.Sprint(res.StatusCode, " ", read(t, res.Body)); got != want || r.calls != 1 {
			t.Errorf("answer %q after %d reloads, want %q after one", got, r.calls, want)
		}
	}
}

// POST /-/reload is rejected in each of these cases.
func TestReloadIsGuarded(t *testing.T) {
	const path = "/-/reload"
	file := write(t, filepath.Join(t.TempDir(), "web.yml"), users(t))
	r := new(recorder)
	const local = "127.0.0.1:9400"
	handler := func(o server.Options) http.Handler { return newServer(t, ordered(o, r)).Handler() }
	on := handler(server.Options{Lifecycle: true, Address: local})
	for _, tt := range []struct {
		name   string
		h      http.Handler
		method string
		site   string
		status int
		says   string
	}{
		{"disabled", handler(server.Options{Address: local}), "POST", "", 403, "--web-enable-lifecycle"},
		{"disabled, GET", handler(server.Options{Address: local}), "GET", "", 405, ""},
		{"GET", on, "GET", "", 405, ""},
		{"page of another site", on, "POST", "cross-site", 403, ""},
		{"without protection", handler(server.Options{Lifecycle: true, Address: ":9400", ConfigFile: file}), "POST", "", 403, ""},
	} {
		res := do(t, tt.h, tt.method, path, "Sec-Fetch-Site", tt.site)
		if body := read(t, res.Body); res.StatusCode != tt.status || !strings.Contains(body, tt.says) {
			t.Errorf("%s: status %d and %q, want %d and %q", tt.name, res.StatusCode, body, tt.status, tt.says)
		}
	}
	if r.calls > 0 {
		t.Errorf("reloads of rejected requests = %d, want none", r.calls)
	}

	// A client that disconnects does not interrupt a reload.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(gone, "POST", path, nil)
	req.Host = "localhost"
	on.ServeHTTP(w, req)
	if w.Code != 200 || r.calls != 1 {
		t.Errorf("disconnected client: status %d after %d reloads, want 200 after one", w.Code, r.calls)
	}
}
