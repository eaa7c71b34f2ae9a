package app

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a file must be left alone before it is read again: an
// editor writes in pieces, and a ConfigMap is swapped by several renames.
const settle = 500 * time.Millisecond

// maxSettle is how long that wait is at most: a neighbor of the file may never be left
// alone.
const maxSettle = 2 * time.Second

// recheck is how often the files are looked at even if nothing was notified: a
// file mounted by subPath or from the network notifies nobody.
const recheck = 30 * time.Second

// A fileWatch calls changed when the content of one of its files differs. It
// watches the folders, not the files: a ConfigMap's file is a link to a link,
// and what changes is the folder in between.
type fileWatch struct {
	changed func()
	files   *Files
	log     *slog.Logger

	mu   sync.Mutex
	sums map[string][sha256.Size]byte // of the files, as they were last looked at

	told map[string]bool // folders that cannot be watched; run's own
}

// follow makes files the ones that are watched, as the configuration that was
// just read names them. What is to be read from those that are new must be read
// afterwards, so that no change of them is missed.
func (w *fileWatch) follow(files []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sums := make(map[string][sha256.Size]byte, len(files))
	for _, f := range files {
		sum, known := w.sums[f]
		if !known {
			sum = w.sumOf(f)
		}
		sums[f] = sum
	}
	w.sums = sums
}

func (w *fileWatch) run(ctx context.Context) {
	w.told = map[string]bool{}
	var events chan fsnotify.Event
	var failures chan error
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Warn("Files are looked at now and then only", "every", recheck, "error", err)
	} else {
		defer watcher.Close()
		events, failures = watcher.Events, watcher.Errors
		w.watchFolders(watcher)
	}
	quiet := time.NewTimer(recheck)
	defer quiet.Stop()
	var first time.Time // of the events since the files were last looked at
	soon := func() {
		if first.IsZero() {
			first = time.Now()
		}
		quiet.Reset(max(0, min(settle, maxSettle-time.Since(first))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			soon()
		case err := <-failures:
			w.log.Warn("The file watch missed something; looking at the files", "error", err)
			soon()
		case <-quiet.C:
			first = time.Time{}
			if w.differ() {
				w.changed()
			}
			if watcher != nil {
				w.watchFolders(watcher)
			}
			quiet.Reset(recheck)
		}
	}
}

// watchFolders watches every folder on the way to a file's content, beside
// those that are watched already.
func (w *fileWatch) watchFolders(watcher *fsnotify.Watcher) {
	w.mu.Lock()
	files := slices.Collect(maps.Keys(w.sums))
	w.mu.Unlock()
	watched := watcher.WatchList()
	for _, f := range files {
		dirs := []string{filepath.Dir(f)}
		if real, err := filepath.EvalSymlinks(f); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
		for _, dir := range dirs {
			if slices.Contains(watched, dir) {
				continue
			}
			watched = append(watched, dir)
			if err := watcher.Add(dir); err != nil && !w.told[dir] {
				w.told[dir] = true
				w.log.Warn("A folder is looked at now and then only", "folder", dir, "every", recheck, "error", err)
			}
		}
	}
}

// differ reports whether the content of a file is another than when it was last
// looked at.
func (w *fileWatch) differ() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	differ := false
	for f, before := range w.sums {
		now := w.sumOf(f)
		differ = differ || now != before
		w.sums[f] = now
	}
	return differ
}

// sumOf is a fingerprint of a file's content. A file that cannot be read has one
// of its own, so that its coming and going are changes.
func (w *fileWatch) sumOf(file string) [sha256.Size]byte {
	content, err := w.files.Read(file)
	if err != nil {
		content = []byte("unreadable: " + err.Error())
	}
	return sha256.Sum256(content)
}
