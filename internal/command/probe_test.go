package command_test

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
)

const (
	success = "dcgm_exporter_collect_success 1\n"
	gpus    = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-1\"} 40\nDCGM_FI_DEV_GPU_TEMP{gpu=\"1\",UUID=\"GPU-2\"} 40\nDCGM_FI_DEV_FB_USED{gpu=\"1\",UUID=\"GPU-2\",GPU_I_ID=\"3\"} 1\n"
)

// serve serves the pages one after another, then repeats the last one.
func serve(t *testing.T, status int, pages ...string) *httptest.Server {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := int(requests.Add(1)) - 1
		w.WriteHeader(status)
		_, _ = w.Write([]byte(pages[min(n, len(pages)-1)]))
	}))
	t.Cleanup(server.Close)
	return server
}

func TestProbe(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		pages  []string
		args   []string
		code   int
		says   string
	}{
		"data":               {200, []string{success + gpus}, nil, command.OK, "4 series in 3 families, 3 series of DCGM fields"},
		"from NVIDIA":        {200, []string{gpus}, nil, command.OK, "3 series in 2 families"},
		"no GPU":             {200, []string{success}, nil, command.Faulty, "1 series, but none of a DCGM field"},
		"failed":             {200, []string{"dcgm_exporter_collect_success 0\n" + gpus}, nil, command.Faulty, "the last collection failed"},
		"data after a while": {200, []string{"dcgm_exporter_collect_success 0\n", success + gpus}, []string{"--wait=1m"}, command.OK, "3 series of DCGM fields"},
		"no page":            {404, []string{gpus}, nil, command.Faulty, "404"},
		"no text format":     {200, []string{"{}"}, nil, command.Faulty, "text format"},
		"a web page":         {200, []string{"<!DOCTYPE html><html>"}, nil, command.Faulty, "/metrics is an HTML page, not metrics; check the host, port and path"},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			code := command.Run(t.Context(), "probe", w.process(append(c.args, serve(t, c.status, c.pages...).URL+"/metrics")...))
			if said := w.Out.String() + w.Err.String(); code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("exit code = %d, output = %q; want %d and %q", code, said, c.code, c.says)
			}
		})
	}
}

func TestTLSAndPasswords(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ann" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(success + gpus))
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

func TestProbeArguments(t *testing.T) {
	const form = "an http:// or https:// URL, such as http://127.0.0.1:9400/metrics"
	for args, want := range map[string]string{
		"":                       "expected one URL, such as http://127.0.0.1:9400/metrics, not []",
		"http://a http://b":      `expected one URL, such as http://127.0.0.1:9400/metrics, not ["http://a" "http://b"]`,
		"localhost:9501":         `"localhost:9501" is not ` + form,
		"[::1]:9501/gpu/metrics": `"[::1]:9501/gpu/metrics" is not ` + form,
		"/metrics":               `"/metrics" is not ` + form,
		"ftp://a":                `"ftp://a" is not ` + form,
	} {
		var w world
		code := command.Run(t.Context(), "probe", w.process(strings.Fields(args)...))
		if got := w.Err.String(); code != command.Unable || got != "dcgm-exporter probe: "+want+"\n" {
			t.Errorf("probe %s: exit code = %d, stderr = %q; want %d, %q", args, code, got, command.Unable, want)
		}
	}
	for args, want := range map[string]int{"--wait=x http://a": command.Unable, "http://[::1": command.Faulty} {
		var w world
		if code := command.Run(t.Context(), "probe", w.process(strings.Fields(args)...)); code != want {
			t.Errorf("%q: exit code = %d, want %d", args, code, want)
		}
	}
}
