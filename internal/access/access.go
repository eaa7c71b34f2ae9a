// Package access tells which callers an HTTP server lets in: whether its web configuration
// authenticates them, and whether its address is on loopback. Package config uses it to leave endpoints
// out, package server to guard them.
package access

import (
	"net"

	"go.yaml.in/yaml/v3"
)

// Authenticates reports whether a web configuration of exporter-toolkit demands a password or a verified
// client certificate (exporter-toolkit, docs/web-configuration.md). The error is about YAML.
func Authenticates(webConfig []byte) (bool, error) {
	var web struct {
		Users map[string]string `yaml:"basic_auth_users"`
		TLS   struct {
			ClientAuth string `yaml:"client_auth_type"`
		} `yaml:"tls_server_config"`
	}
	if err := yaml.Unmarshal(webConfig, &web); err != nil {
		return false, err
	}
	return len(web.Users) > 0 || web.TLS.ClientAuth == "RequireAndVerifyClientCert", nil
}

// IsLoopback reports whether a listen address, host:port, is on loopback. A name other than localhost is
// not, since it may resolve to any address.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
