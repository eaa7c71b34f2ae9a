//go:build !linux

package server

import "os"

// memoryFile is a temporary file, for systems without files in memory.
type memoryFile struct {
	name    string
	content []byte
}

func newMemoryFile() *memoryFile { return &memoryFile{} }

func (m *memoryFile) path() string { return m.name }

func (m *memoryFile) write(content []byte) error {
	if m.name == "" {
		f, err := os.CreateTemp("", "web-config")
		if err != nil {
			return err
		}
		m.name = f.Name()
		_ = f.Close() // nothing was written
	}
	m.content = content
	return os.WriteFile(m.name, content, 0o600)
}
