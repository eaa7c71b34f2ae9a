package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// A webConfig is what the server itself needs to know about the web configuration. The zero value is that of a server
// without TLS and passwords.
type webConfig struct {
	files         []string // the file and the certificates it refers to
	users         bool     // requests need a password
	authenticates bool     // callers need a password or a client certificate
}

// WebFiles returns the files of the active web configuration, for watching.
func (s *Server) WebFiles() []string { return s.web.Load().files }

// LoadWebConfig reads the TLS and password file and its certificates. apply activates them.
//
// exporter-toolkit reads its file for every request and connection. It therefore gets a copy in memory that includes
// the certificates: requests do not touch the file system, and a file that breaks later has no effect.
func (s *Server) LoadWebConfig() (apply func() error, err error) {
	path := s.opt.ConfigFile
	if path == "" {
		return func() error { return nil }, nil
	}
	text, config, err := inMemory(path)
	if err == nil {
		err = web.Validate(path)
	}
	if err != nil {
		return nil, fmt.Errorf("--web-config-file %s: %w", path, err)
	}
	return func() error {
		if err := s.replaceWebCopy(text); err != nil {
			return fmt.Errorf("--web-config-file %s: %w", path, err)
		}
		s.web.Store(config)
		return nil
	}, nil
}

// replaceWebCopy replaces the copy atomically: a reader of its path gets either the old content or the new.
func (s *Server) replaceWebCopy(content []byte) error {
	fd, err := unix.MemfdCreate("web-config", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "web-config")
	if _, err := file.Write(content); err != nil {
		return errors.Join(err, file.Close())
	}
	if s.webCopy == nil {
		s.webCopy = file
		return nil
	}
	defer file.Close()
	return unix.Dup3(fd, int(s.webCopy.Fd()), unix.O_CLOEXEC)
}

// servedConfig returns the file that exporter-toolkit reads. It is the copy, or the original file if /proc is missing,
// or "" without a configuration.
func (s *Server) servedConfig() string {
	if s.webCopy == nil {
		return ""
	}
	path := fmt.Sprintf("/proc/self/fd/%d", s.webCopy.Fd())
	if _, err := os.Stat(path); err != nil {
		return s.opt.ConfigFile
	}
	return path
}

// inMemory returns a web configuration in which file names are replaced by the content of the files.
func inMemory(path string) ([]byte, *webConfig, error) {
	text, err := readRegular(path)
	if err != nil {
		return nil, nil, err
	}
	var content map[string]any
	if err := yaml.Unmarshal(text, &content); err != nil {
		return nil, nil, err
	}
	users, _ := content["basic_auth_users"].(map[string]any)
	tls, _ := content["tls_server_config"].(map[string]any)
	config := &webConfig{files: []string{path}, users: len(users) > 0}
	config.authenticates = config.users || tls["client_auth_type"] == "RequireAndVerifyClientCert"
	for key, inline := range map[string]string{"cert_file": "cert", "key_file": "key", "client_ca_file": "client_ca"} {
		name, _ := tls[key].(string)
		if name == "" {
			continue
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		pem, err := readRegular(name)
		if err != nil {
			return nil, nil, err
		}
		delete(tls, key)
		tls[inline] = string(pem)
		config.files = append(config.files, name)
	}
	text, err = yaml.Marshal(content)
	return text, config, err
}

// readRegular reads a regular file. It rejects pipes, which could block forever.
func readRegular(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	return os.ReadFile(path)
}
