package server

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// memoryFile is a file in memory, without a file system.
type memoryFile struct {
	fd      int // -1 before the first write
	content []byte
}

func newMemoryFile() *memoryFile { return &memoryFile{fd: -1} }

// path returns a path that this process can open, also after later writes.
func (m *memoryFile) path() string { return fmt.Sprintf("/proc/self/fd/%d", m.fd) }

// write replaces the content atomically: a reader of the path gets either the old content or the new.
func (m *memoryFile) write(content []byte) error {
	fd, err := unix.MemfdCreate("web-config", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	for rest := content; len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		if err != nil {
			_ = unix.Close(fd)
			return err
		}
		rest = rest[n:]
	}
	m.content = content
	if m.fd < 0 {
		m.fd = fd
		return nil
	}
	defer unix.Close(fd)
	return unix.Dup3(fd, m.fd, unix.O_CLOEXEC)
}
