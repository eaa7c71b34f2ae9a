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

// A Keeper holds the file of a state. Save may be called from one goroutine and
// returns at once; Run writes.
type Keeper struct {
	path string
	log  *slog.Logger
	up   *gauge.State
	disk disk

	mu     sync.Mutex
	latest *State // not yet written
	wake   chan struct{}

	failing string // the reason of the latest write; Run's
	// unread is set while there is a file that could not be read: it may be good, and
	// is not written over. Once it can be read its counts are earlier. Run's.
	unread  bool
	earlier *State
}

// A disk is what a Keeper does with files, in the order that makes them last.
type disk interface {
	read(path string) ([]byte, error)
	create(path string) (file, error)
	rename(from, to string) error
	syncDir(path string) error
}

// A file is what a Keeper needs of an os.File.
type file interface {
	io.Writer
	Sync() error
	Close() error
}

// Open reads the file at path, and returns its Keeper and what it holds: an
// empty state where there is none or none that can be used. Such a file is kept
// beside as path.corrupt, said so in the log and as a series. Open never fails:
// counting goes on without a file.
func Open(path string, reg prometheus.Registerer, log *slog.Logger) (*Keeper, *State) {
	return open(path, osDisk{}, reg, log)
}

func open(path string, d disk, reg prometheus.Registerer, log *slog.Logger) (*Keeper, *State) {
	k := &Keeper{
		path: path, log: log, disk: d, wake: make(chan struct{}, 1),
		up: gauge.NewState("dcgm_exporter_state_file_up",
			"Whether the state file could be written the last time, with the reason if not.", "reason"),
	}
	restored := gauge.NewState("dcgm_exporter_state_file_restored",
		"Whether the state file could be used at the start; 0, with the reason, where the counters began anew.", "reason")
	reg.MustRegister(k.up, restored)
	k.up.Set(gauge.Series{Value: 1, Labels: []string{""}})

	s, err := read(d, path)
	switch {
	case err == nil:
		restored.Set(gauge.Series{Value: 1, Labels: []string{""}})
		return k, s
	case errors.Is(err, fs.ErrNotExist):
		log.Info("The state file is not there yet: the event counters begin at zero", "path", path)
		restored.Set(gauge.Series{Value: 1, Labels: []string{""}})
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrVersion):
		restored.Set(gauge.Series{Labels: []string{reasonOf(err)}})
		kept := path + corruptSuffix
		if moveErr := putAside(path, kept); moveErr != nil {
			kept = ""
			err = errors.Join(err, moveErr)
		}
		log.Warn("The state file cannot be used: the event counters begin at zero", "path", path, "kept", kept, "error", err)
	default:
		k.unread = true
		restored.Set(gauge.Series{Labels: []string{reasonOf(err)}})
		log.Warn("The state file cannot be read: the event counters begin at zero, and the file stays as it is until it can be read", "path", path, "error", err)
	}
	return k, &State{Version: Version}
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

func putAside(path, kept string) error {
	if regular(path) != nil {
		return nil // which is why it cannot be used
	}
	return os.Rename(path, kept)
}

func read(d disk, path string) (*State, error) {
	text, err := d.read(path)
	if err != nil {
		return nil, err
	}
	return Decode(text)
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

// Save has s written soon. The Keeper takes it over.
func (k *Keeper) Save(s *State) {
	k.mu.Lock()
	k.latest = s
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run writes what is saved until ctx is done, and then what is left.
func (k *Keeper) Run(ctx context.Context) {
	for {
		select {
		case <-k.wake:
			k.flush()
		case <-ctx.Done():
			k.flush()
			return
		}
	}
}

// flush writes the latest state, if it is not written yet.
func (k *Keeper) flush() {
	k.mu.Lock()
	s := k.latest
	k.latest = nil
	k.mu.Unlock()
	if s == nil {
		return
	}
	err := k.recover()
	if err == nil {
		if k.earlier != nil {
			s.add(k.earlier)
		}
		err = k.write(s)
	}
	reason, up := "", 1.0
	if err != nil {
		reason, up = reasonOf(err), 0
	}
	k.up.Set(gauge.Series{Value: up, Labels: []string{reason}})
	switch {
	case err != nil && reason != k.failing:
		k.log.Warn("The state file cannot be written: the event counters go on, and are lost at a restart", "path", k.path, "error", err)
	case err == nil && k.failing != "":
		k.log.Info("The state file is written again", "path", k.path)
	}
	k.failing = reason
}

// recover reads a file that could not be read at the start once more.
func (k *Keeper) recover() error {
	if !k.unread {
		return nil
	}
	earlier, err := read(k.disk, k.path)
	switch {
	case err == nil:
		k.earlier = earlier
		k.log.Info("The state file can be read again: its counts are part of what is kept", "path", k.path)
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrVersion):
		if err := putAside(k.path, k.path+corruptSuffix); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	k.unread = false
	return nil
}

// write puts the state in the place of the file, whole or not at all.
func (k *Keeper) write(s *State) error {
	text, err := Encode(s)
	if err != nil {
		return err
	}
	if len(text) > MaxSize {
		return fmt.Errorf("the state has %d bytes, %d at most are kept", len(text), MaxSize)
	}
	if err := regular(k.path); err != nil {
		return err
	}
	next := k.path + nextSuffix
	f, err := k.disk.create(next)
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
		err = k.disk.rename(next, k.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return k.disk.syncDir(filepath.Dir(k.path))
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

// Interval is how often a state should be saved at most.
const Interval = 10 * time.Second
