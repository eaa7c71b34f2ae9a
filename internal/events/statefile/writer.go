package statefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
)

// The reasons of dcgm_exporter_state_file_up and …_restored.
const (
	reasonCorrupt    = "corrupt"
	reasonVersion    = "version"
	reasonPermission = "permission"
	reasonFull       = "full"
	reasonError      = "error"
)

// corruptSuffix is what the name of a file gets that could not be used.
const corruptSuffix = ".corrupt"

// nextSuffix is what the name of a file has until it is whole.
const nextSuffix = ".next"

// MaxSize bounds a file, in bytes: 64 GPUs with 33 owners of 20 XIDs each need less than half of
// it.
const MaxSize = 16 << 20

// Interval is how often a state should be saved at most.
const Interval = 10 * time.Second

// The errors of a Form's Decode.
var (
	// ErrCorrupt: the file is no state, or one that contradicts itself.
	ErrCorrupt = errors.New("not a state file")
	// ErrVersion: the file is of a form that a later exporter writes.
	ErrVersion = errors.New("another version of the state file")
)

// A Form reads and writes the content of a file.
type Form[S any] struct {
	Decode func([]byte) (*S, error) // wraps ErrCorrupt or ErrVersion
	Encode func(*S) ([]byte, error)
	Add    func(s, earlier *S) // adds the counts of an earlier state to s
}

// A Writer writes the file of a state. Save may be called from one goroutine and returns at once;
// Run writes.
type Writer[S any] struct {
	path string
	form Form[S]
	log  *slog.Logger
	up   *gauge.State
	disk disk

	mu     sync.Mutex
	latest *S // not yet written
	wake   chan struct{}

	failing string // the reason of the latest write; Run's
	// unread is set while there is a file that could not be read: it may be good, and is not written
	// over. Once it can be read its counts are earlier. Run's.
	unread  bool
	earlier *S
}

// A disk is what a Writer does with files, in the order that makes them last.
type disk interface {
	read(path string) ([]byte, error)
	create(path string) (file, error)
	rename(from, to string) error
	syncDir(path string) error
}

// A file is what a Writer needs of an os.File.
type file interface {
	io.Writer
	Sync() error
	Close() error
}

// Open reads the file at path, and returns its Writer and its content: nil where there is no file,
// or none that can be used. Such a file is kept beside as path.corrupt, reported in the log and as
// a series. Open never fails: counting goes on without a file.
func Open[S any](path string, form Form[S], reg prometheus.Registerer, log *slog.Logger) (*Writer[S], *S) {
	return open(path, osDisk{}, form, reg, log)
}

func open[S any](path string, d disk, form Form[S], reg prometheus.Registerer, log *slog.Logger) (*Writer[S], *S) {
	w := &Writer[S]{
		path: path, form: form, log: log, disk: d, wake: make(chan struct{}, 1),
		up: gauge.NewState("dcgm_exporter_state_file_up",
			"Whether the state file could be written the last time, with the reason if not.", "reason"),
	}
	restored := gauge.NewState("dcgm_exporter_state_file_restored",
		"Whether the state file could be used at the start; 0, with the reason, where the counters started from 0.", "reason")
	reg.MustRegister(w.up, restored)
	w.up.Set(gauge.Series{Value: 1, Labels: []string{""}})

	s, err := w.read()
	switch {
	case err == nil:
		restored.Set(gauge.Series{Value: 1, Labels: []string{""}})
		return w, s
	case errors.Is(err, fs.ErrNotExist):
		log.Info("The state file is not there yet: the event counters begin at zero", "path", path)
		restored.Set(gauge.Series{Value: 1, Labels: []string{""}})
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrVersion):
		restored.Set(gauge.Series{Labels: []string{reasonOf(err)}})
		attrs := []any{"path", path}
		switch moved, moveErr := putAside(path, path+corruptSuffix); {
		case moved:
			attrs = append(attrs, "kept", path+corruptSuffix)
		case moveErr != nil:
			err = errors.Join(err, moveErr)
		}
		log.Warn("The state file cannot be used: the event counters begin at zero", append(attrs, "error", err)...)
	default:
		w.unread = true
		restored.Set(gauge.Series{Labels: []string{reasonOf(err)}})
		log.Warn("The state file cannot be read: the event counters begin at zero, and the file stays as it is until it can be read", "path", path, "error", err)
	}
	return w, nil
}

// errNoFile: a folder or a device has the name of the file. It is left alone.
var errNoFile = fmt.Errorf("%w: not a regular file", ErrCorrupt)

// regular returns an error if there is something else than a file at path.
func regular(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return errNoFile
	}
	return nil
}

// putAside gives the file another name, and reports whether it has it. Something else than a file
// stays, which is why it cannot be used.
func putAside(path, kept string) (moved bool, err error) {
	if regular(path) != nil {
		return false, nil
	}
	err = os.Rename(path, kept)
	return err == nil, err
}

func (w *Writer[S]) read() (*S, error) {
	text, err := w.disk.read(w.path)
	if err != nil {
		return nil, err
	}
	return w.form.Decode(text)
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, ErrCorrupt):
		return reasonCorrupt
	case errors.Is(err, ErrVersion):
		return reasonVersion
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return reasonPermission
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return reasonFull
	default:
		return reasonError
	}
}

// Save has s written soon. The Writer owns it from then on.
func (w *Writer[S]) Save(s *S) {
	w.mu.Lock()
	w.latest = s
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run writes what is saved until ctx is done, and then what is left.
func (w *Writer[S]) Run(ctx context.Context) {
	for {
		select {
		case <-w.wake:
			w.flush()
		case <-ctx.Done():
			w.flush()
			return
		}
	}
}

// flush writes the latest state, if it is not written yet.
func (w *Writer[S]) flush() {
	w.mu.Lock()
	s := w.latest
	w.latest = nil
	w.mu.Unlock()
	if s == nil {
		return
	}
	err := w.recover()
	if err == nil {
		if w.earlier != nil {
			w.form.Add(s, w.earlier)
		}
		err = w.write(s)
	}
	reason, up := "", 1.0
	if err != nil {
		reason, up = reasonOf(err), 0
	}
	w.up.Set(gauge.Series{Value: up, Labels: []string{reason}})
	switch {
	case err != nil && reason != w.failing:
		w.log.Warn("The state file cannot be written: the event counters go on, and are lost at a restart", "path", w.path, "error", err)
	case err == nil && w.failing != "":
		w.log.Info("The state file is written again", "path", w.path)
	}
	w.failing = reason
}

// recover reads a file that could not be read at the start once more.
func (w *Writer[S]) recover() error {
	if !w.unread {
		return nil
	}
	earlier, err := w.read()
	switch {
	case err == nil:
		w.earlier = earlier
		w.log.Info("The state file can be read again: its counts are part of what is kept", "path", w.path)
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrVersion):
		if _, err := putAside(w.path, w.path+corruptSuffix); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	w.unread = false
	return nil
}

// write puts the state in the place of the file, whole or not at all.
func (w *Writer[S]) write(s *S) error {
	text, err := w.form.Encode(s)
	if err != nil {
		return err
	}
	if len(text) > MaxSize {
		return fmt.Errorf("the state has %d bytes, %d at most are kept", len(text), MaxSize)
	}
	if err := regular(w.path); err != nil {
		return err
	}
	next := w.path + nextSuffix
	f, err := w.disk.create(next)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = w.disk.rename(next, w.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return w.disk.syncDir(filepath.Dir(w.path))
}

// osDisk is the disk of this machine.
type osDisk struct{}

func (osDisk) read(path string) ([]byte, error) {
	if err := regular(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxSize+1))
}

func (osDisk) create(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err // not f: a nil pointer in an interface is not nil
	}
	return f, nil
}

func (osDisk) rename(from, to string) error { return os.Rename(from, to) }

// syncDir makes a rename last. A file system that cannot is no reason to fail.
func (osDisk) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}
