// Package access says which callers an HTTP server lets in: whether its web configuration
// authenticates them, and whether its address is of this machine alone. The configuration needs it
// to leave endpoints out, the server to guard them.
package access

import (
	"net"

	"go.yaml.in/yaml/v3"
)

// Authenticates reports whether a web configuration of exporter-toolkit lets in only callers with a
// password or a verified client certificate (exporter-toolkit, docs/web-configuration.md). The
// error is about YAML.
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

// IsLoopback reports whether a host:port that is listened on is reached from this machine alone. A
// name other than localhost is not: it may resolve to any address.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
