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

// resolve returns the path of a node's file. Symbolic links are resolved inside the root.
func (r root) resolve(name string) (string, error) {
	full, err := securejoin.SecureJoin(r.path, name)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return full, nil
}

// read returns a file's content. The error is a *fs.PathError with the path on the node.
func (r root) read(name string) (string, error) {
	full, err := r.resolve(name)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(full); err == nil && !info.Mode().IsRegular() {
		return "", &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	data, err := os.ReadFile(full)
	return string(data), renamed(err, name)
}

// names returns the sorted names of a directory's entries.
func (r root) names(dir string) ([]string, error) {
	full, err := r.resolve(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(full)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, renamed(err, dir)
}

// info returns the FileInfo of a path. Symbolic links are resolved inside the root.
func (r root) info(name string) (fs.FileInfo, error) {
	full, err := r.resolve(name)
	if err != nil {
		return nil, err
	}
	info, err := r.stat(full)
	return info, renamed(err, name)
}

func (r root) has(name string) bool {
	_, err := r.info(name)
	return err == nil
}

func (r root) hasAny(names ...string) bool { return slices.ContainsFunc(names, r.has) }

// link returns the base name of a symbolic link's target, or "".
func (r root) link(name string) string {
	dir, err := r.resolve(path.Dir(name))
	if err != nil {
		return ""
	}
	target, err := os.Readlink(filepath.Join(dir, path.Base(name)))
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

// device returns the numbers of a character device. For other files, ok is false.
func device(info fs.FileInfo) (major, minor uint32, ok bool) {
	st, isStat := info.Sys().(*syscall.Stat_t)
	if !isStat || info.Mode()&fs.ModeCharDevice == 0 {
		return 0, 0, false
	}
	return unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)), true
}

// renamed replaces the path in a file system error with the path on the node. The mount point of the root would confuse
// users.
func renamed(err error, name string) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return &fs.PathError{Op: p.Op, Path: name, Err: p.Err}
	}
	return err
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
