package app

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// pruneEvery is how often old dumps are removed.
	pruneEvery = time.Minute
	// maxDumps bounds the dumps in the folder, whatever their age.
	maxDumps = 10000
)

// dumpNames are the files that a dumper may remove: its own.
var dumpNames = regexp.MustCompile(`^snapshot-\d{8}T\d{6}\.\d{9}Z\.json(?:\.gz)?$`)

// lastWrite bounds how long the end of the process waits for the disk.
const lastWrite = 500 * time.Millisecond

// A dumper writes every snapshot into a file of its own, for a look at what the exporter saw. It
// never delays a cycle: what comes while the disk is busy is left out.
type dumper struct {
	config.Dump
	log     *slog.Logger
	next    chan dump
	failing bool      // serve's own
	pruned  time.Time // serve's own
}

type dump struct {
	at   time.Time
	text []byte
}

// newDumper returns nil where the configuration has no dumps; a nil dumper writes none.
func newDumper(c config.Dump, log *slog.Logger) *dumper {
	if !c.Enabled {
		return nil
	}
	return &dumper{Dump: c, log: log, next: make(chan dump, 1)}
}

// take notes a snapshot, which is valid during the call only.
func (d *dumper) take(s *gpu.Snapshot) {
	if d == nil {
		return
	}
	text, err := json.MarshalIndent(dumped(s), "", " ")
	if err != nil {
		d.log.Error("A snapshot cannot be dumped", "error", err)
		return
	}
	select {
	case d.next <- dump{s.Time, append(text, '\n')}:
	default:
		d.log.Debug("A snapshot is not dumped: the one before is still being written")
	}
}

// run writes until ctx is done. A disk that hangs does not keep the process.
func (d *dumper) run(ctx context.Context) {
	if d == nil {
		return
	}
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
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-d.next:
			err := d.write(next)
			if err == nil && time.Since(d.pruned) >= pruneEvery {
				d.pruned = time.Now()
				err = d.prune(d.pruned)
			}
			switch {
			case err != nil && !d.failing:
				d.log.Warn("Snapshots cannot be dumped", "error", err)
			case err == nil && d.failing:
				d.log.Info("Snapshots are dumped again", "folder", d.Directory)
			}
			d.failing = err != nil
		}
	}
}

func (d *dumper) write(next dump) error {
	if err := os.MkdirAll(d.Directory, 0o750); err != nil {
		return err
	}
	name, text := next.at.UTC().Format("snapshot-20060102T150405.000000000Z.json"), next.text
	if d.Compress {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(text) // into memory
		_ = z.Close()
		name, text = name+".gz", b.Bytes()
	}
	path := filepath.Join(d.Directory, name)
	// Exclusive: the folder may be one that every user can write to.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil { // half a dump is of no use
		_ = os.Remove(path)
	}
	return err
}

// prune removes the dumps that are older than the retention, and the oldest of too many.
func (d *dumper) prune(now time.Time) error {
	entries, err := os.ReadDir(d.Directory) // by name, and so by time
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if dumpNames.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	oldest := ""
	if d.Retention > 0 {
		oldest = now.Add(-d.Retention).UTC().Format("snapshot-20060102T150405.000000000Z")
	}
	for i, name := range names {
		if name >= oldest && len(names)-i <= maxDumps {
			break
		}
		if err := os.Remove(filepath.Join(d.Directory, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

type dumpedSnapshot struct {
	Time        time.Time           `json:"time"`
	Error       string              `json:"error,omitempty"`
	Source      string              `json:"source,omitempty"`
	Driver      string              `json:"driver,omitempty"`
	Library     string              `json:"library,omitempty"`
	Entities    []dumpedEntity      `json:"entities,omitempty"`
	Families    []dumpedFamily      `json:"families,omitempty"`
	Unavailable []dumpedUnavailable `json:"unavailable,omitempty"`
}

type dumpedEntity struct {
	Entity       string            `json:"entity"`
	UUID         string            `json:"uuid,omitempty"`
	PCIBusID     string            `json:"pciBusID,omitempty"`
	Model        string            `json:"model,omitempty"`
	Profile      string            `json:"profile,omitempty"`
	Error        string            `json:"error,omitempty"`
	OldestSample *time.Time        `json:"oldestSample,omitempty"`
	Owner        map[string]string `json:"owner,omitempty"`
	Values       map[string]any    `json:"values,omitempty"` // by counter
}

type dumpedFamily struct {
	Name   string         `json:"name"`
	Series []dumpedSeries `json:"series"`
}

type dumpedSeries struct {
	Entity string            `json:"entity,omitempty"`
	Labels map[string]string `json:"labels,omitempty"` // beyond the entity's
	Value  any               `json:"value"`
}

type dumpedUnavailable struct {
	Field  string `json:"field"`
	Entity string `json:"entity,omitempty"` // empty for all
	Reason string `json:"reason"`
}

// dumped copies what a snapshot says.
func dumped(s *gpu.Snapshot) dumpedSnapshot {
	out := dumpedSnapshot{Time: s.Time, Error: textOf(s.Health.Err)}
	t := s.Topology
	if t == nil {
		return out
	}
	out.Source, out.Driver, out.Library = t.Source, t.Driver, t.Library
	name := func(row int) string {
		if row == gpu.AllRows {
			return ""
		}
		return t.Devices[row].Entity.String()
	}
	for row := range t.Devices {
		d, h := &t.Devices[row], &s.Health.Entities[row]
		e := dumpedEntity{
			Entity: name(row), UUID: d.UUID, PCIBusID: d.PCIBusID, Model: d.Model, Profile: d.Profile,
			Error: textOf(h.Err), Owner: mapOf(s.Owners.Of(row)), Values: map[string]any{},
		}
		if h.OldestSample != 0 {
			at := time.Unix(0, h.OldestSample).UTC()
			e.OldestSample = &at
		}
		for i := range s.Columns {
			if v := s.Columns[i].Values[row]; !v.IsAbsent() {
				e.Values[s.Columns[i].Counter.Name] = plain(v)
			}
		}
		out.Entities = append(out.Entities, e)
	}
	for i := range s.Families {
		f := dumpedFamily{Name: s.Families[i].Name, Series: []dumpedSeries{}}
		for _, x := range s.Families[i].Series {
			f.Series = append(f.Series, dumpedSeries{Entity: name(x.Row), Labels: mapOf(x.Labels, x.Owner), Value: plain(x.Value)})
		}
		out.Families = append(out.Families, f)
	}
	for _, u := range s.Health.Unavailable {
		out.Unavailable = append(out.Unavailable, dumpedUnavailable{u.Field, name(u.Row), u.Reason})
	}
	return out
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func mapOf(lists ...[]gpu.Label) map[string]string {
	m := map[string]string{}
	for _, list := range lists {
		for _, l := range list {
			m[l.Name] = l.Value
		}
	}
	return m
}

// plain returns a value as JSON can hold it: what is no number there is a text.
func plain(v gpu.Value) any {
	if n, ok := v.Int64(); ok {
		return n
	}
	if n, ok := v.Number(); ok && !math.IsNaN(n) && !math.IsInf(n, 0) {
		return n
	}
	return fmt.Sprint(v)
}
