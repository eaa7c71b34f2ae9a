package host

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// root is a node's root file system, mounted at any path.
type root struct {
	path string
	// stat is os.Stat. Tests replace it, because creating device nodes needs privileges.
	stat func(string) (fs.FileInfo, error)
}

// open calls get with the path of a node's file, in which symbolic links are resolved inside the root. The error is a
// *fs.PathError with the path on the node, because the mount point of the root would confuse users.
func open[T any](r root, name string, get func(string) (T, error)) (content T, err error) {
	full, err := securejoin.SecureJoin(r.path, name)
	if err == nil {
		content, err = get(full)
	}
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	if err != nil {
		err = &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return content, err
}

// read returns a file's content.
func (r root) read(name string) (string, error) {
	data, err := open(r, name, func(full string) ([]byte, error) {
		if info, err := os.Stat(full); err == nil && !info.Mode().IsRegular() {
			return nil, errors.New("not a regular file")
		}
		return os.ReadFile(full)
	})
	return string(data), err
}

// names returns the sorted names of a directory's entries.
func (r root) names(dir string) (names []string, err error) {
	entries, err := open(r, dir, os.ReadDir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// info returns the FileInfo of a path.
func (r root) info(name string) (fs.FileInfo, error) { return open(r, name, r.stat) }

func (r root) has(name string) bool {
	_, err := r.info(name)
	return err == nil
}

func (r root) hasAny(names ...string) bool { return slices.ContainsFunc(names, r.has) }

// link returns the base name of a symbolic link's target, or "".
func (r root) link(name string) string {
	target, err := open(r, path.Dir(name), func(dir string) (string, error) {
		return os.Readlink(filepath.Join(dir, path.Base(name)))
	})
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// glob returns the files that match any of the patterns, as paths on the node. Only the last element of a pattern may
// have wildcards. A directory that cannot be read has no matches.
func (r root) glob(patterns ...string) []string {
	var found []string
	for _, p := range patterns {
		names, _ := r.names(path.Dir(p))
		for _, n := range names {
			if ok, err := path.Match(path.Base(p), n); ok && err == nil {
				found = append(found, path.Join(path.Dir(p), n))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// device returns the major and minor numbers of a character device, or zeros for other files.
func device(info fs.FileInfo) [2]uint32 {
	st, isStat := info.Sys().(*syscall.Stat_t)
	if !isStat || info.Mode()&fs.ModeCharDevice == 0 {
		return [2]uint32{}
	}
	return [2]uint32{unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))}
}

// absent reports whether err means that a file does not exist. A file without read permission is not absent.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// oneLine returns the first line of a text, trimmed.
func oneLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(line)
}
