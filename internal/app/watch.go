package app

import (
	"context"
	"io/fs"
	"os"
	"sync"
	"time"
)

// lookEvery is the interval at which files are checked. Polling costs microseconds, and also works for symbolic links,
// files mounted individually and network file systems.
const lookEvery = time.Second

// A fileWatch detects changed files.
type fileWatch struct {
	mu    sync.Mutex
	infos map[string]fs.FileInfo // info of each file at the last check; nil if the file is inaccessible
}

// follow replaces the list of files. Call it before reading the files, so that no change is missed.
func (w *fileWatch) follow(files []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	infos := make(map[string]fs.FileInfo, len(files))
	for _, f := range files {
		info, known := w.infos[f]
		if !known {
			info, _ = os.Stat(f)
		}
		infos[f] = info
	}
	w.infos = infos
}

// run calls changed after a file has changed and all files have stayed the same for one interval, since editors write
// in pieces. It returns when ctx is done.
func (w *fileWatch) run(ctx context.Context, changed func()) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	pending := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		differs := w.differs()
		if pending && !differs {
			changed()
		}
		pending = differs
	}
}

// differs reports whether a file has changed since the last check, and records the current state.
func (w *fileWatch) differs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	differs := false
	for f, before := range w.infos {
		now, _ := os.Stat(f) // nil if it is inaccessible
		differs = differs || !isSame(before, now)
		w.infos[f] = now
	}
	return differs
}

// isSame reports whether two infos describe the same file with the same content.
func isSame(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Mode() == b.Mode() && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
