package app

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a file must be left alone before it is read again: an
// editor writes in pieces, and a ConfigMap is swapped by several renames.
const settle = 500 * time.Millisecond

// recheck is how often the files are looked at even if nothing was notified: a
// file mounted by subPath or from the network notifies nobody.
const recheck = 30 * time.Second

// A fileWatch calls changed when the content of one of its files differs. It
// watches the folders, not the files: a ConfigMap's file is a link to a link,
// and what changes is the folder in between.
type fileWatch struct {
	files   []string
	changed func()
	log     *slog.Logger
}

func (w *fileWatch) run(ctx context.Context) {
	last := w.sums()
	var events chan fsnotify.Event
	var failures chan error
	if watcher, err := fsnotify.NewWatcher(); err != nil {
		w.log.Warn("Files are looked at now and then only", "every", recheck, "error", err)
	} else {
		defer watcher.Close()
		for dir := range w.folders() {
			if err := watcher.Add(dir); err != nil {
				w.log.Warn("A folder is looked at now and then only", "folder", dir, "every", recheck, "error", err)
			}
		}
		events, failures = watcher.Events, watcher.Errors
	}
	quiet := time.NewTimer(recheck)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			quiet.Reset(settle)
		case err := <-failures:
			w.log.Warn("The file watch missed something; looking at the files", "error", err)
			quiet.Reset(settle)
		case <-quiet.C:
			if now := w.sums(); now != last {
				last = now
				w.changed()
			}
			quiet.Reset(recheck)
		}
	}
}

// folders returns every folder on the way to a file's content.
func (w *fileWatch) folders() map[string]bool {
	dirs := map[string]bool{}
	for _, f := range w.files {
		dirs[filepath.Dir(f)] = true
		if real, err := filepath.EvalSymlinks(f); err == nil {
			dirs[filepath.Dir(real)] = true
		}
	}
	return dirs
}

// sums is a fingerprint of the contents of all files. A file that cannot be
// read has one of its own, so that its coming and going are changes.
func (w *fileWatch) sums() [sha256.Size]byte {
	all := sha256.New()
	for _, f := range w.files {
		content, err := os.ReadFile(f)
		if err != nil {
			content = []byte("unreadable: " + err.Error())
		}
		sum := sha256.Sum256(content)
		all.Write(sum[:])
	}
	return [sha256.Size]byte(all.Sum(nil))
}
