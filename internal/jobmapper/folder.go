package jobmapper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ErrTooManyFiles means that the folder has too many files to be a folder of job files.
var ErrTooManyFiles = errors.New("too many files")

var (
	errTooLarge = fmt.Errorf("more than %d bytes", maxFile)
	errChanging = errors.New("keeps changing")
	errNotAFile = errors.New("not a regular file")
	errOutside  = errors.New("a link that leads out of the folder")
)

// maxEntries is the maximum number of entries in the folder.
const maxEntries = 4096

// A writer that rewrites a file in place leaves it empty or truncated for a moment, and two versions can have the same
// timestamp. A file that has just changed is therefore read again after a pause. A file that was recent when it was
// read is read again in the next cycle.
const (
	fresh  = 50 * time.Millisecond
	rounds = 4
)

// folder reads the job files of a directory and keeps their content.
type folder struct {
	dir   string
	pause func(context.Context, time.Duration) error
	files map[string]file
}

// file is the content of one job file.
type file struct {
	jobs    []string
	dropped int
	err     error
	info    fs.FileInfo // of the version that was read
	settled bool        // the timestamp is old enough to identify the version
}

// scan updates f.files: the files whose names n resolves. It reads only those that changed since the last call. It
// returns the other names, sorted and without hidden files.
func (f *folder) scan(ctx context.Context, n names) (unknown []string, err error) {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, fmt.Errorf("job files: %w", gpu.WrapFSError(err))
	}
	defer root.Close()
	all, err := f.list(root)
	if err != nil {
		return nil, fmt.Errorf("job files: %w", gpu.WrapFSError(err))
	}
	var open []string
	for _, name := range all {
		if _, ok := n.row(name); ok {
			open = append(open, name)
		} else if !strings.HasPrefix(name, ".") { // a temporary or lock file of a writer
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	files := map[string]file{}
	for round := 0; len(open) > 0 && round < rounds; round++ {
		if round > 0 {
			if err := f.pause(ctx, fresh); err != nil {
				return unknown, err
			}
		}
		if open, err = f.readAll(ctx, root, open, files); err != nil {
			return unknown, err
		}
	}
	f.files = files
	return unknown, nil
}

// readAll reads the named files into files. It returns the names of those that have just changed and must be read
// again.
func (f *folder) readAll(
	ctx context.Context, root *os.Root, names []string, files map[string]file,
) (again []string, err error) {
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		got, isNew, err := f.read(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			delete(files, name) // removed since it was listed
			continue
		}
		got.err = err
		files[name] = got
		if isNew && (errors.Is(err, errChanging) || err == nil && time.Since(got.info.ModTime()).Abs() < fresh) {
			again = append(again, name)
		}
	}
	return again, nil
}

// list returns the names in the folder.
func (f *folder) list(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) { // an empty folder returns io.EOF
		return nil, err
	}
	if len(names) > maxEntries {
		return nil, fmt.Errorf("%s: %w: more than %d", f.dir, ErrTooManyFiles, maxEntries)
	}
	return names, nil
}

// read returns a file, from memory if its version was read before. It follows links only within the folder. Otherwise,
// whoever may write there could put lines of any file that the exporter can read on the page.
func (f *folder) read(root *os.Root, name string) (got file, isNew bool, err error) {
	// Without O_NONBLOCK, opening a pipe would block.
	handle, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return file{}, true, outside(root, name, err)
	}
	defer handle.Close()
	before, err := handle.Stat()
	if err != nil {
		return file{}, true, err
	}
	if !before.Mode().IsRegular() {
		return file{}, true, errNotAFile
	}
	if known, ok := f.files[name]; ok && known.err == nil && known.settled && sameVersion(known.info, before) {
		return known, false, nil
	}
	content, err := io.ReadAll(io.LimitReader(handle, maxFile+1))
	if err != nil {
		return file{}, true, err
	}
	after, err := handle.Stat()
	switch {
	case err != nil:
		return file{}, true, err
	case len(content) > maxFile:
		return file{}, true, errTooLarge
	case !sameVersion(before, after) || int64(len(content)) != after.Size():
		return file{}, true, errChanging
	}
	got = file{info: after, settled: time.Since(after.ModTime()) > attribution.TimestampSlack}
	got.jobs, got.dropped = Parse(content)
	return got, true, nil
}

// outside returns err, or an error that a link leads out of the folder. os.Root rejects those with an untyped error.
func outside(root *os.Root, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ELOOP) {
		return gpu.WrapFSError(err)
	}
	if info, lerr := root.Lstat(name); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%w: %w", errOutside, err)
	}
	return gpu.WrapFSError(err)
}

func sameVersion(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
