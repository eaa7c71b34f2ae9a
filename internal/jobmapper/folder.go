package jobmapper

import (
	"bytes"
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
	"unicode"
	"unicode/utf8"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ErrTooManyFiles means that the folder has too many files to be a folder of job files.
var ErrTooManyFiles = errors.New("too many files")

var (
	errTooLarge = fileError{"too_large", fmt.Sprintf("more than %d bytes", maxFile)}
	errChanging = fileError{"changing", "keeps changing"}
	errNotAFile = fileError{"not_a_file", "not a regular file"}
	errOutside  = fileError{"outside", "a link that leads out of the folder"}
)

// fileError is a failure whose reason no error of package gpu has.
type fileError struct{ reason, text string }

func (e fileError) Error() string { return e.text }

func reasonOf(err error) string {
	if e, ok := errors.AsType[fileError](err); ok {
		return e.reason
	}
	return gpu.Reason(err)
}

const (
	maxEntries = 4096     // in the folder
	maxFile    = 64 << 10 // bytes
	maxJob     = 256      // bytes of one job's name
)

// A writer that rewrites a file in place leaves it empty or truncated for a moment, and two versions can have the same
// timestamp. A file that has just changed is therefore read again after a pause. A file that was recent when it was
// read is read again in the next cycle.
const (
	fresh  = 50 * time.Millisecond
	rounds = 4
)

// file is the content of one job file.
type file struct {
	jobs    []string
	dropped int
	err     error
	info    fs.FileInfo // of the version that was read
	settled bool        // the timestamp is old enough to identify the version
}

// scan updates m.files, the files of the folder whose names have rows. It reads only those that changed since the last
// call. It returns the other names, sorted and without hidden files.
func (m *Mapper) scan(ctx context.Context, rows map[string]int) (unknown []string, err error) {
	var open []string
	root, err := os.OpenRoot(m.dir)
	if err == nil {
		defer root.Close()
		open, err = m.list(root)
	}
	if err != nil {
		return nil, fmt.Errorf("job files: %w", gpu.WrapFSError(err))
	}
	open = slices.DeleteFunc(open, func(name string) bool {
		_, known := rows[strings.ToLower(name)]
		if !known {
			unknown = append(unknown, name)
		}
		return !known
	})
	slices.Sort(unknown)
	files := map[string]file{}
	for round := 0; len(open) > 0 && round < rounds; round++ {
		if round > 0 {
			m.pause(fresh)
		}
		if err := ctx.Err(); err != nil {
			return unknown, err
		}
		open = slices.DeleteFunc(open, func(name string) bool {
			got, err := m.read(root, name)
			got.err = err
			files[name] = got
			if errors.Is(err, fs.ErrNotExist) {
				delete(files, name) // removed since it was listed
			}
			isChanging := errors.Is(err, errChanging) || err == nil && time.Since(got.info.ModTime()).Abs() < fresh
			return !isChanging
		})
	}
	m.files = files
	return unknown, nil
}

// list returns the names in the folder, except hidden ones, which are temporary or lock files of a writer.
func (m *Mapper) list(root *os.Root) ([]string, error) {
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
		return nil, fmt.Errorf("%s: %w: more than %d", m.dir, ErrTooManyFiles, maxEntries)
	}
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, ".") }), nil
}

// read returns a file, from memory if its version was read before. It follows links only within the folder. Otherwise,
// whoever may write there could put lines of any file that the exporter can read on the page.
func (m *Mapper) read(root *os.Root, name string) (got file, err error) {
	// Opening a pipe without O_NONBLOCK would block.
	handle, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if _, ok := errors.AsType[syscall.Errno](err); !ok { // os.Root rejects a link with an error of its own
			return file{}, errOutside
		}
		return file{}, gpu.WrapFSError(err)
	}
	defer handle.Close()
	before, err := handle.Stat()
	if err != nil {
		return file{}, err
	}
	if !before.Mode().IsRegular() {
		return file{}, errNotAFile
	}
	if known, ok := m.files[name]; ok && known.err == nil && known.settled && sameVersion(known.info, before) {
		return known, nil
	}
	content, err := io.ReadAll(io.LimitReader(handle, maxFile+1))
	if err != nil {
		return file{}, err
	}
	after, err := handle.Stat()
	switch {
	case err != nil:
		return file{}, err
	case len(content) > maxFile:
		return file{}, errTooLarge
	case !sameVersion(before, after) || int64(len(content)) != after.Size():
		return file{}, errChanging
	}
	got = file{info: after, settled: time.Since(after.ModTime()) > attribution.TimestampSlack}
	got.jobs, got.dropped = parse(content)
	return got, nil
}

func sameVersion(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

// parse returns the jobs that a file names, one per line, sorted and without duplicates. It ignores blank lines,
// surrounding spaces, carriage returns and a byte order mark. Invalid UTF-8 and control characters become U+FFFD. A
// name of more than maxJob bytes is dropped, because a truncated name could be another job's.
func parse(content []byte) (jobs []string, dropped int) {
	isNoise := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '\ufeff' }
	printable := func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}
	for line := range bytes.Lines(content) {
		job := strings.ToValidUTF8(strings.TrimFunc(string(line), isNoise), string(utf8.RuneError))
		job = strings.Map(printable, job)
		switch {
		case job == "":
		case len(job) > maxJob:
			dropped++
		default:
			jobs = append(jobs, job)
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs), dropped
}
