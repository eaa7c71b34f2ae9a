package statefile

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// A recorder is a disk that notes what is done with it, and fails where a test says so.
type recorder struct {
	osDisk
	did  []string
	fail map[string]error
}

func (r *recorder) do(what string) error {
	r.did = append(r.did, what)
	return r.fail[what]
}

func (r *recorder) read(path string) ([]byte, error) {
	if err := r.fail["read"]; err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return r.osDisk.read(path)
}

func (r *recorder) create(path string) (file, error) {
	if err := r.do("create"); err != nil {
		return nil, err
	}
	f, err := r.osDisk.create(path)
	return recorded{r, f}, err
}

func (r *recorder) rename(from, to string) error {
	if err := r.do("rename"); err != nil {
		return err
	}
	return r.osDisk.rename(from, to)
}

func (r *recorder) syncDir(path string) error {
	if err := r.do("sync folder"); err != nil {
		return err
	}
	return r.osDisk.syncDir(path)
}

type recorded struct {
	*recorder
	file
}

func (f recorded) Write(p []byte) (int, error) {
	if err := f.do("write"); err != nil {
		return 0, err
	}
	return f.file.Write(p)
}

func (f recorded) Sync() error {
	if err := f.do("sync"); err != nil {
		return err
	}
	return f.file.Sync()
}

func (f recorded) Close() error {
	_ = f.file.Close()
	return f.do("close")
}

// A state is counts by name, as JSON with a version.
type state struct {
	Version int            `json:"version"`
	Counts  map[string]int `json:"counts"`
}

// Counts is the form of a state.
func counts() Form[state] {
	return Form[state]{
		Encode: func(s *state) ([]byte, error) { return json.Marshal(s) },
		Decode: func(text []byte) (*state, error) {
			s := new(state)
			if err := json.Unmarshal(text, s); err != nil {
				return nil, errors.Join(ErrCorrupt, err)
			}
			if s.Version != 1 {
				return nil, ErrVersion
			}
			return s, nil
		},
		Add: func(s, earlier *state) {
			for name, n := range earlier.Counts {
				s.Counts[name] += n
			}
		},
	}
}

func counted(name string, n int) *state { return &state{Version: 1, Counts: map[string]int{name: n}} }

// started opens a state file on r.
func started(path string, r *recorder) (*Writer[state], *state, *strings.Builder) {
	log := &strings.Builder{}
	w, s := open(path, r, counts(), prometheus.NewRegistry(), slog.New(slog.NewTextHandler(log, nil)))
	return w, s, log
}

func (w *Writer[S]) saved(t *testing.T, s *S) {
	t.Helper()
	w.Save(s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Run(ctx)
}

// The content is on disk before the name is its own, and the name after.
func TestOrderOfAWrite(t *testing.T) {
	r := &recorder{}
	k, _, _ := started(filepath.Join(t.TempDir(), "state"), r)
	k.saved(t, counted("GPU-1", 1))
	if diff := cmp.Diff([]string{"create", "write", "sync", "close", "rename", "sync folder"}, r.did); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever step fails, the file of before stays as it was.
func TestAWriteThatFailsChangesNothing(t *testing.T) {
	for _, step := range []string{"create", "write", "sync", "close", "rename"} {
		t.Run(step, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			r := &recorder{}
			k, _, _ := started(path, r)
			k.saved(t, counted("GPU-1", 1))
			r.fail = map[string]error{step: syscall.EIO}
			k.saved(t, counted("GPU-1", 2))
			r.fail = nil
			if _, s, _ := started(path, r); cmp.Diff(counted("GPU-1", 1), s) != "" {
				t.Errorf("the file has %+v", s)
			}
			if _, err := os.Stat(path + nextSuffix); err == nil {
				t.Error("half a file is left")
			}
		})
	}
}

// A good file that cannot be read now is neither moved nor written over. Once it can be read its
// counts are added to what was counted meanwhile.
func TestAFileThatCannotBeReadNow(t *testing.T) {
	for _, failure := range []error{syscall.EIO, syscall.EACCES, syscall.ESTALE} {
		t.Run(failure.Error(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			r := &recorder{}
			k, _, _ := started(path, r)
			k.saved(t, counted("GPU-1", 40))
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}

			r.fail = map[string]error{"read": failure}
			k, s, log := started(path, r)
			if s != nil || !strings.Contains(log.String(), "cannot be read") {
				t.Errorf("restored %+v; the log:\n%s", s, log)
			}
			k.saved(t, counted("GPU-1", 1))
			if now, err := os.ReadFile(path); err != nil || string(now) != string(good) {
				t.Errorf("the file was written over: %s, %v", now, err)
			}
			if _, err := os.Stat(path + corruptSuffix); err == nil {
				t.Error("the good file was put aside")
			}

			r.fail = nil
			k.saved(t, counted("GPU-1", 2))
			k.saved(t, counted("GPU-1", 3)) // what was counted before is part of it
			_, s, _ = started(path, r)
			if diff := cmp.Diff(counted("GPU-1", 43), s); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
