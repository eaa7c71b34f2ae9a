package server

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/access"
)

// A webConfig is the web configuration in force. exporter-toolkit reads its file again for every request and every
// connection, so it is given a copy in memory with the certificates in it: a request touches no file system, and a file
// that was broken since changes nothing.
type webConfig struct {
	path   string // "" without TLS and passwords
	copy   *memoryFile
	latest atomic.Pointer[webFacts]
}

// webFacts are the facts of a web configuration that the server needs itself.
type webFacts struct {
	files         []string // the file and the certificates that it names
	users         bool     // requests need a password
	authenticates bool     // callers need a password or a client certificate
}

// load reads the file and the certificates, and puts them in force. After an error the configuration before goes on.
func (w *webConfig) load() error {
	if w.path == "" {
		return nil
	}
	if err := web.Validate(w.path); err != nil { // its errors name the lines of the file itself
		return fmt.Errorf("--web-config-file %s: %w", w.path, err)
	}
	text, facts, err := inMemory(w.path)
	if err != nil {
		return fmt.Errorf("--web-config-file %s: %w", w.path, err)
	}
	if old := w.latest.Load(); old == nil || !bytes.Equal(text, w.copy.content) {
		if err := w.copy.write(text); err != nil {
			return fmt.Errorf("--web-config-file %s: %w", w.path, err)
		}
	}
	w.latest.Store(facts)
	return nil
}

// servedPath returns the file that exporter-toolkit reads: the copy, or the file itself where a root without /proc hides
// the copy; "" without a configuration.
func (w *webConfig) servedPath() string {
	if w.path == "" {
		return ""
	}
	copied := w.copy.path()
	if _, err := os.Stat(copied); err != nil {
		return w.path
	}
	return copied
}

// facts returns those of the configuration in force; none without a file.
func (w *webConfig) facts() webFacts {
	if f := w.latest.Load(); f != nil {
		return *f
	}
	return webFacts{}
}

// inMemory returns a web configuration with the content of the files that it names in their place.
func inMemory(path string) ([]byte, *webFacts, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, nil, err
	}
	facts := &webFacts{files: []string{path}}
	if facts.authenticates, err = access.Authenticates(text); err != nil {
		return nil, nil, err
	}
	users, _ := config["basic_auth_users"].(map[string]any)
	facts.users = len(users) > 0
	tls, _ := config["tls_server_config"].(map[string]any)
	for key, inline := range map[string]string{"cert_file": "cert", "key_file": "key", "client_ca_file": "client_ca"} {
		name, _ := tls[key].(string)
		if name == "" {
			continue
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, err
		}
		delete(tls, key)
		tls[inline] = string(content)
		facts.files = append(facts.files, name)
	}
	text, err = yaml.Marshal(config)
	return text, facts, err
}
