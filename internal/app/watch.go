package app

import (
	"context"
	"io/fs"
	"os"
	"sync"
	"time"
)

// lookEvery is how often the files are looked at. Looking costs microseconds, and works for links that are swapped, for
// files that were mounted by themselves and on network file systems alike.
const lookEvery = time.Second

// A fileWatch finds files that have changed.
type fileWatch struct {
	mu    sync.Mutex
	infos map[string]fs.FileInfo // of each file at the latest look; nil for a file that cannot be reached
}

// follow replaces the list of files. Read a file after that, so that no change of it is missed.
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

// run calls changed once a file has changed and all files have stayed the same for a second look, until ctx is done: an
// editor writes in pieces.
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

// differs reports whether a file has changed since the latest look.
func (w *fileWatch) differs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	differs := false
	for f, before := range w.infos {
		now, _ := os.Stat(f) // nil while it cannot be reached
		differs = differs || !isSame(before, now)
		w.infos[f] = now
	}
	return differs
}

// isSame reports whether two looks found the same file with the same content.
func isSame(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Mode() == b.Mode() && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
