package command_test

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
)

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
