package command_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// world is a subcommand's environment. It has variables and files in memory, a source, and output buffers.
type world struct {
	Env, Files map[string]string
	Stdin      string
	Open       opener // nil means the simulator
	Out, Err   bytes.Buffer
}

type opener = func(context.Context, *config.Config, *gpu.Plan) (app.Backend, error)

func (w *world) process(args ...string) command.Process {
	open := w.Open
	if open == nil {
		open = simulate
	}
	return command.Process{
		Args: args, In: strings.NewReader(w.Stdin), Out: &w.Out, Err: &w.Err, Open: open,
		Env: func(name string) (string, bool) { v, ok := w.Env[name]; return v, ok },
		ReadFile: func(name string) ([]byte, error) {
			if text, ok := w.Files[name]; ok {
				return []byte(text), nil
			}
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		},
	}
}

// run runs a subcommand in a bubble, whose clock is fake.
func run(t *testing.T, name string, p command.Process) (code int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { code = command.Run(t.Context(), name, p) })
	return code
}

// simulate opens the simulator, whichever source is configured.
func simulate(_ context.Context, cfg *config.Config, _ *gpu.Plan) (app.Backend, error) {
	source, err := sim.New(sim.Options{Node: cfg.Source.Sim.Node, Seed: cfg.Source.Sim.Seed})
	if err != nil {
		return app.Backend{}, err
	}
	return app.Backend{Source: collector.SourceOf(source.Open)}, nil
}

// refuse returns an opener that fails with the error in text, such as "unavailable: no driver". If text does not begin
// with an error of package gpu, the error is of another kind. If text is empty, the opener opens the simulator.
func refuse(text string) opener {
	if text == "" {
		return simulate
	}
	err := errors.New(text)
	for _, e := range []error{gpu.ErrUnavailable, gpu.ErrVersion, gpu.ErrPermission, gpu.ErrTimeout, gpu.ErrLost} {
		if rest, ok := strings.CutPrefix(text, e.Error()); ok {
			err = fmt.Errorf("%w%s", e, rest)
		}
	}
	return func(context.Context, *config.Config, *gpu.Plan) (app.Backend, error) {
		return app.Backend{Source: refusing{err}}, nil
	}
}

type refusing struct{ err error }

func (r refusing) Open(context.Context, *gpu.Plan) (collector.Session, error) { return nil, r.err }

// dialer fails with err, except for one address, such as "tcp localhost:5555".
func dialer(address string, err error) func(context.Context, string, string) (net.Conn, error) {
	known, suffix, _ := strings.Cut(address, " ")
	return func(_ context.Context, network, address string) (net.Conn, error) {
		if network == known && strings.HasSuffix(address, suffix) { // the path of a socket is below Root
			here, there := net.Pipe()
			return here, there.Close()
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", err)}
	}
}

// readYAML reads a file of testdata.
func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// serve serves the pages one after another, then repeats the last one. It returns the address.
func serve(t *testing.T, status int, pages ...string) string {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := int(requests.Add(1)) - 1
		w.WriteHeader(status)
		_, _ = w.Write([]byte(pages[min(n, len(pages)-1)]))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/metrics"
}

// TestRuns checks the runs in testdata/runs: the exit code, and all that is printed or a part of it.
func TestRuns(t *testing.T) {
	files, err := filepath.Glob("testdata/runs/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata/runs (error %v)", err)
	}
	for _, file := range files {
		var runs []struct {
			Name, Args, Stdin string
			Env, Files        map[string]string
			Refuses           string   // why the source does not open
			Pages             []string // pages of a running exporter, whose address is the last argument
			Status            int      // HTTP status of the pages; 200 by default
			Code              int
			Out, Err          string
			Says              string // a part of the output, if Out and Err are not given
		}
		readYAML(t, file, &runs)
		for _, tt := range runs {
			t.Run(tt.Name, func(t *testing.T) {
				w := &world{Env: tt.Env, Files: tt.Files, Stdin: tt.Stdin, Open: refuse(tt.Refuses)}
				args := strings.Fields(tt.Args)
				if tt.Pages != nil {
					args = append(args, serve(t, max(tt.Status, http.StatusOK), tt.Pages...))
				}
				p := w.process(args[1:]...)
				p.Root, p.Dial, p.Page = t.TempDir(), dialer("", syscall.ECONNREFUSED), page
				code := 0
				if tt.Pages == nil {
					code = run(t, args[0], p)
				} else {
					code = command.Run(t.Context(), args[0], p)
				}
				if code != tt.Code {
					t.Errorf("exit code = %d, want %d", code, tt.Code)
				}
				if out := w.Out.String() + w.Err.String(); tt.Says != "" && !strings.Contains(out, tt.Says) {
					t.Errorf("output = %q, want it to contain %q", out, tt.Says)
				}
				if diff := cmp.Diff([]string{tt.Out, tt.Err}, []string{w.Out.String(), w.Err.String()}); tt.Says == "" && diff != "" {
					t.Errorf("output and errors (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// page returns a page that names the source. The page of NVML has no data.
func page(_ context.Context, cfg *config.Config) (page []byte, err error) {
	if cfg.Source.Kind == config.SourceNVML {
		err = errors.New("open session: unavailable")
	}
	return []byte(string(cfg.Source.Kind) + " 1\n"), err
}

// full is a writer that fails because the device is full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatFails(t *testing.T) {
	w := &world{}
	p := w.process()
	p.Out, p.Page = full{}, page
	if code := command.Run(t.Context(), "once", p); code != command.Unable {
		t.Errorf("exit code = %d, want %d", code, command.Unable)
	}
}

func TestUsages(t *testing.T) {
	for _, name := range []string{"check", "counters", "doctor", "fields", "once", "probe", "topo", "verdict"} {
		if !strings.Contains(command.Usage(), "\n  "+name+" ") {
			t.Errorf("usage does not list %s", name)
		}
		for _, args := range []string{name + " -h", name + " --help", name + " -help", "help " + name} {
			var w world
			subcommand, arg, _ := strings.Cut(args, " ")
			if code := command.Run(t.Context(), subcommand, w.process(arg)); code != 0 || !strings.HasPrefix(w.Out.String(), "Usage: dcgm-exporter "+name) || w.Err.Len() > 0 {
				t.Errorf("%s: exit code = %d, stdout = %q, stderr = %q; want 0, the usage, nothing", args, code, &w.Out, &w.Err)
			}
		}
	}
}

func TestCounters(t *testing.T) {
	for name, file := range map[string]string{
		"": etc.DefaultName, "default": etc.DefaultName, "health": etc.HealthName, "fleet": etc.FleetName,
	} {
		var w world
		want, _ := etc.File(file)
		code := command.Run(t.Context(), "counters", w.process(strings.Fields(name)...))
		if code != command.OK || w.Out.String() != string(want) || w.Err.Len() > 0 {
			t.Errorf("counters %s: exit code = %d, %d bytes, stderr = %q; want 0, %d, nothing",
				name, code, w.Out.Len(), &w.Err, len(want))
		}
	}
}

// Every field has a row with all columns.
func TestWholeCatalog(t *testing.T) {
	w := &world{}
	if code := command.Run(t.Context(), "fields", w.process()); code != command.OK {
		t.Fatalf("exit code = %d, want 0", code)
	}
	lines := strings.Split(strings.TrimSpace(w.Out.String()), "\n")
	if want := 1 + len(catalog.Search()); len(lines) != want {
		t.Errorf("lines = %d, want %d", len(lines), want)
	}
	if i := slices.IndexFunc(lines, func(line string) bool { return len(strings.Fields(line)) < 7 }); i >= 0 {
		t.Errorf("line = %q, want at least 7 words", lines[i])
	}
	if !strings.Contains(w.Out.String(), "cannot be exported") {
		t.Error("no line says that a field cannot be exported, want at least one")
	}
}

func TestTLSAndPasswords(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ann" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte("DCGM_FI_DEV_GPU_TEMP 40\n"))
	}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	files := map[string]string{"/ca": ca, "/broken": "x", "/scrape/username": "ann\n", "/scrape/password": "secret", "/other/username": "ann", "/other/password": "x"}
	for args, want := range map[string]int{
		"--ca-file=/ca --credentials=/scrape":     command.OK,
		"--insecure --credentials=/scrape":        command.OK,
		"--credentials=/scrape":                   command.Faulty, // the certificate is not trusted
		"--ca-file=/ca":                           command.Faulty,
		"--ca-file=/ca --credentials=/other":      command.Faulty,
		"--ca-file=/broken --credentials=/scrape": command.Unable,
		"--ca-file=/none --credentials=/scrape":   command.Unable,
		"--ca-file=/ca --credentials=/none":       command.Unable,
	} {
		w := world{Files: files}
		if code := command.Run(t.Context(), "probe", w.process(append(strings.Fields(args), server.URL)...)); code != want {
			t.Errorf("%s: exit code = %d, want %d; stderr: %s", args, code, want, w.Err.String())
		}
	}
}
