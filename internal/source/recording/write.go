package recording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Write writes the recording as lines of JSON. It refuses what would not be read again: more than
// MaxSize bytes, or more samples than a machine has in a recording of that size. Text that is not
// UTF-8 is made so.
func (r *Recording) Write(w io.Writer) error {
	out := writer{to: w}
	out.line(line{Header: &r.Header})
	for i := range r.Devices {
		out.line(line{Device: &r.Devices[i]})
	}
	for i := range r.Parts {
		out.line(line{Part: &r.Parts[i]})
	}
	for i := range r.Pairs {
		out.line(line{Pair: &r.Pairs[i]})
	}
	for i := range r.Fields {
		out.line(line{Field: &r.Fields[i]})
	}
	for i := range r.Owners {
		out.line(line{Owners: &r.Owners[i]})
	}
	for _, pid := range slices.Sorted(maps.Keys(r.Pods)) {
		out.line(line{Pod: &pod{PID: pid, UID: r.Pods[pid]}})
	}
	facts := 0
	for i := range r.Reads {
		if facts += r.Reads[i].facts(); facts > maxFacts {
			return fmt.Errorf("more than %d samples in %d of %d reads: record fewer, or fewer fields or devices", maxFacts, i+1, len(r.Reads))
		}
		if out.line(line{Read: &r.Reads[i]}); out.full {
			return fmt.Errorf("the recording is larger than %d MiB after %d of %d reads: record fewer, or fewer fields or devices", MaxSize>>20, i, len(r.Reads))
		}
	}
	out.line(line{End: &end{Reads: len(r.Reads)}})
	return out.err
}

type writer struct {
	to   io.Writer
	size int
	full bool
	err  error // the first
}

func (w *writer) line(l line) {
	if w.err != nil || w.full {
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if w.err = enc.Encode(l); w.err != nil {
		return
	}
	if b.Len() > maxLine {
		w.err = fmt.Errorf("a line of the recording is longer than %d MiB: record fewer fields or devices", maxLine>>20)
		return
	}
	if w.size += b.Len(); w.size > MaxSize-1024 { // room for the end
		w.full = l.End == nil
		return
	}
	_, w.err = w.to.Write(b.Bytes())
}
