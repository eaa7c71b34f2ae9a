package app

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
)

const (
	pruneEvery = time.Minute            // the interval at which old dumps are removed
	maxDumps   = 10000                  // maximum number of dumps in the directory, whatever their age
	lastWrite  = 500 * time.Millisecond // how long shutdown waits for the disk
	// dumpLayout is the time format in the names of dumps, which therefore sort by time.
	dumpLayout = "snapshot-20060102T150405.000000000Z"
)

// dumpNames matches the files that a dumper may remove: its own, and the JSON files of an earlier version.
var dumpNames = regexp.MustCompile(`^snapshot-\d{8}T\d{6}\.\d{9}Z\.(prom|json)(\.gz)?$`)

// A dumper writes each page to a file. It never delays a cycle: pages that arrive while the disk is busy are skipped.
type dumper struct {
	config.Dump
	log  *slog.Logger
	next chan dump
}

func newDumper(c config.Dump, log *slog.Logger) *dumper {
	return &dumper{Dump: c, log: log, next: make(chan dump, 1)}
}

type dump struct {
	at   time.Time
	page *exposition.Page
}

// record hands over the page of a cycle.
func (d *dumper) record(at time.Time, page *exposition.Page) {
	select {
	case d.next <- dump{at, page.Hold()}:
	default:
		page.Release()
		d.log.Debug("Dump skipped: the previous one is still being written")
	}
}

// run writes dumps until ctx is done. A hung disk does not prevent shutdown.
func (d *dumper) run(ctx context.Context) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		d.serve(ctx)
	}()
	<-ctx.Done()
	select {
	case <-over:
	case <-time.After(lastWrite):
	}
}

func (d *dumper) serve(ctx context.Context) {
	failing, pruned := false, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-d.next:
			err := d.write(next)
			next.page.Release()
			if err == nil && time.Since(pruned) >= pruneEvery {
				pruned = time.Now()
				err = d.prune(pruned)
			}
			if err != nil && !failing {
				d.log.Warn("Page dump failed", "error", err)
			}
			failing = err != nil
		}
	}
}

func (d *dumper) write(next dump) error {
	if err := os.MkdirAll(d.Directory, 0o750); err != nil {
		return err
	}
	name, text := next.at.UTC().Format(dumpLayout)+".prom", next.page.Bytes()
	if d.Compress {
		name, text = name+".gz", next.page.Gzip()
	}
	path := filepath.Join(d.Directory, name)
	// O_EXCL, since the directory may be writable by every user.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil { // remove a partial dump
		_ = os.Remove(path)
	}
	return err
}

// prune removes dumps older than the retention, and the oldest ones beyond maxDumps.
func (d *dumper) prune(now time.Time) error {
	entries, err := os.ReadDir(d.Directory) // sorted by name, which is by time
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !dumpNames.MatchString(e.Name()) })
	oldest := ""
	if d.Retention > 0 {
		oldest = now.Add(-d.Retention).UTC().Format(dumpLayout)
	}
	for i, e := range entries {
		if e.Name() >= oldest && len(entries)-i <= maxDumps {
			break
		}
		err := os.Remove(filepath.Join(d.Directory, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
