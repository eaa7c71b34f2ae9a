package access_test

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/access"
)

func TestAuthenticates(t *testing.T) {
	for text, want := range map[string]bool{
		"":                           false,
		"basic_auth_users: {a: $2y}": true,
		"basic_auth_users: {}":       false,
		"tls_server_config: {client_auth_type: RequireAndVerifyClientCert}":                       true,
		"tls_server_config: {client_auth_type: RequireAnyClientCert}":                             false, // of any signer
		"tls_server_config: {client_auth_type: VerifyClientCertIfGiven}":                          false,
		"tls_server_config: {client_auth_type: NoClientCert}\nbasic_auth_users: {a: $2y, b: $2y}": true,
	} {
		got, err := access.Authenticates([]byte(text))
		if got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got, err := access.Authenticates([]byte("basic_auth_users: [a]")); got || err == nil {
		t.Errorf("a list of users: %v, %v", got, err)
	}
}

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"localhost:9400": true, "127.0.0.1:9400": true, "127.9.9.9:1": true, "[::1]:9400": true, "[::ffff:127.0.0.1]:1": true,
		":9400": false, "0.0.0.0:9400": false, "[::]:9400": false, "10.0.0.1:9400": false, "host:9400": false, "localhost": false, "": false,
	} {
		if got := access.IsLoopback(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}
