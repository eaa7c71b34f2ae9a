package server

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// webConfig is the active web configuration. exporter-toolkit reads its file for every request and connection. It
// therefore gets a copy in memory that includes the certificates: requests do not touch the file system, and a file
// that breaks later has no effect.
type webConfig struct {
	path   string // "" means no TLS and no passwords
	copy   *os.File
	latest atomic.Pointer[webFacts]
}

// webFacts holds what the server itself needs to know about a web configuration.
type webFacts struct {
	files         []string // the file and the certificates it refers to
	users         bool     // requests need a password
	authenticates bool     // callers need a password or a client certificate
}

// WebFiles returns the files of the active web configuration, for watching.
func (s *Server) WebFiles() []string { return s.web.facts().files }

// LoadWebConfig reads the TLS and password file and its certificates. apply activates them.
func (s *Server) LoadWebConfig() (apply func() error, err error) {
	w := &s.web
	if w.path == "" {
		return func() error { return nil }, nil
	}
	text, facts, err := inMemory(w.path)
	if err == nil {
		err = web.Validate(w.path)
	}
	if err != nil {
		return nil, fmt.Errorf("--web-config-file %s: %w", w.path, err)
	}
	return func() error {
		if err := w.write(text); err != nil {
			return fmt.Errorf("--web-config-file %s: %w", w.path, err)
		}
		w.latest.Store(facts)
		return nil
	}, nil
}

// write replaces the copy atomically: a reader of its path gets either the old content or the new.
func (w *webConfig) write(content []byte) error {
	fd, err := unix.MemfdCreate("web-config", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "web-config")
	if _, err := file.Write(content); err != nil {
		return errors.Join(err, file.Close())
	}
	if w.copy == nil {
		w.copy = file
		return nil
	}
	defer file.Close()
	return unix.Dup3(fd, int(w.copy.Fd()), unix.O_CLOEXEC)
}

// servedPath returns the file that exporter-toolkit reads. It is the copy, or the original file if /proc is missing, or
// "" without a configuration.
func (w *webConfig) servedPath() string {
	if w.copy == nil {
		return ""
	}
	path := fmt.Sprintf("/proc/self/fd/%d", w.copy.Fd())
	if _, err := os.Stat(path); err != nil {
		return w.path
	}
	return path
}

// facts returns the facts of the active configuration. They are zero if there is no file.
func (w *webConfig) facts() webFacts { return *cmp.Or(w.latest.Load(), &webFacts{}) }

// inMemory returns a web configuration in which file names are replaced by the content of the files.
func inMemory(path string) ([]byte, *webFacts, error) {
	text, err := readRegular(path)
	if err != nil {
		return nil, nil, err
	}
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, nil, err
	}
	users, _ := config["basic_auth_users"].(map[string]any)
	tls, _ := config["tls_server_config"].(map[string]any)
	facts := &webFacts{files: []string{path}, users: len(users) > 0}
	facts.authenticates = facts.users || tls["client_auth_type"] == "RequireAndVerifyClientCert"
	for key, inline := range map[string]string{"cert_file": "cert", "key_file": "key", "client_ca_file": "client_ca"} {
		name, _ := tls[key].(string)
		if name == "" {
			continue
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		content, err := readRegular(name)
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

// readRegular reads a regular file. It rejects pipes, which could block forever.
func readRegular(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	return os.ReadFile(path)
}
