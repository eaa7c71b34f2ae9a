package progress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// ErrDeadline is returned by Until when its timeout has passed and what was waited for has not come.
// Programs end with 1.
var ErrDeadline = errors.New("the deadline has passed")

// A Step is one thing that is waited for.
type Step struct {
	// Key identifies the step within a look; two looks' steps of one key are the same step.
	Key string
	// State says how it stands; a step that is OK is shown once, when it becomes so.
	State verdict.State
	// What is waited for, in a few words: "gpu-1 device-plugin".
	What string
	// Now is how it stands, one sentence without a full stop.
	Now string
	// Since is when it began; zero where that is not known.
	Since time.Time
	// Ends says what would end the waiting; empty where only time does.
	Ends string
}

// Steps are the rows that waiting can end: those that wait or have failed.
func Steps(rows []verdict.Verdict) []Step {
	var steps []Step
	for _, v := range rows {
		if v.State != verdict.Waiting && v.State != verdict.Failed {
			continue
		}
		steps = append(steps, Step{
			Key: v.Node + "\x00" + v.ID + "\x00" + v.Subject, State: v.State, What: strings.TrimSpace(v.Node + " " + v.Subject),
			Now: v.Reason, Since: v.Since, Ends: v.Next,
		})
	}
	return steps
}

// Options say how Until looks and how a Display shows it. The zero value looks every five seconds
// without a deadline and shows nothing.
type Options struct {
	// Out is what is written to; nil shows nothing.
	Out io.Writer
	// Terminal draws the lines again in place, Width runes wide at most and Lines high; otherwise
	// each change is a line. Zeros mean 100 and 12.
	Terminal     bool
	Width, Lines int
	Style        finding.Style
	// Every is the pause between two looks, at least; a look that takes long makes the pause twice as
	// long as itself. Zero means five seconds.
	Every time.Duration
	// Timeout is how long to wait; zero means without end.
	Timeout time.Duration
}

// A Look finds out how things stand: the steps that are not done, and whether to go on.
type Look func(ctx context.Context) (steps []Step, done bool, err error)

// Until looks, shows what was found, and looks again until the look is done (nil), fails (its error),
// the timeout has passed (ErrDeadline), or the context ends (its error). The last look before the
// deadline is shown; a look that the deadline cuts off is not.
func Until(ctx context.Context, o Options, look Look) error {
	d := NewDisplay(o)
	defer d.Close()
	limited := ctx
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	passed := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s", ErrDeadline, o.Timeout)
	}
	begun := time.Now()
	for {
		start := time.Now()
		steps, done, err := look(limited)
		switch {
		case err != nil && limited.Err() != nil:
			return passed()
		case err != nil:
			return err
		}
		d.Show(time.Now(), begun, steps)
		if done {
			return nil
		}
		if !d.wait(limited, max(cmp.Or(o.Every, 5*time.Second), 2*time.Since(start)), begun, steps) {
			return passed()
		}
	}
}

// wait waits for the next look, and on a terminal lets the clock of the drawing go on. It reports
// false where the context ended first.
func (d *Display) wait(ctx context.Context, pause time.Duration, begun time.Time, steps []Step) bool {
	next := time.NewTimer(pause)
	defer next.Stop()
	var tick <-chan time.Time
	if d.o.Terminal {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-next.C:
			return true
		case now := <-tick:
			d.Show(now, begun, steps)
		}
	}
}

// A Display shows steps. It keeps what it last showed, and writes to Options.Out alone;
// what cannot be written is lost. It is not safe for concurrent use.
type Display struct {
	o     Options
	shown map[string]Step
	drawn int // lines on the terminal that the next drawing replaces
}

// NewDisplay returns a Display that has shown nothing.
func NewDisplay(o Options) *Display {
	o.Width, o.Lines = cmp.Or(o.Width, 100), cmp.Or(o.Lines, 12)
	return &Display{o: o, shown: map[string]Step{}}
}

// Show shows the steps as they stand now; the waiting began at begun.
func (d *Display) Show(now, begun time.Time, steps []Step) {
	if d.o.Out == nil {
		return
	}
	if d.o.Terminal {
		d.draw(now, begun, steps)
		return
	}
	present := make(map[string]Step, len(steps))
	for _, s := range steps {
		before, known := d.shown[s.Key]
		present[s.Key] = s
		if known && before.State == s.State && before.Now == s.Now {
			continue
		}
		fmt.Fprintln(d.o.Out, now.UTC().Format("15:04:05Z"), d.line(now, s))
	}
	// by name, so that a log reads the same each time
	for _, key := range slices.Sorted(maps.Keys(d.shown)) {
		if _, still := present[key]; !still {
			fmt.Fprintln(d.o.Out, now.UTC().Format("15:04:05Z"), finding.OneLine(fmt.Sprintf("%-7s %s", verdict.OK, d.shown[key].What)))
		}
	}
	d.shown = present
}

// line is a step without color.
func (d *Display) line(now time.Time, s Step) string {
	text := fmt.Sprintf("%-7s %s: %s", s.State, s.What, s.Now)
	if age := now.Sub(s.Since); !s.Since.IsZero() && age > 0 {
		text += fmt.Sprintf(" (for %s)", age.Round(time.Second))
	}
	if s.Ends != "" {
		text += " → " + s.Ends
	}
	return finding.OneLine(text)
}

// draw replaces what was drawn before.
func (d *Display) draw(now, begun time.Time, steps []Step) {
	var b strings.Builder
	d.erase(&b)
	lines := make([]string, 0, d.o.Lines)
	head := fmt.Sprintf("waiting for %d, %s", len(steps), now.Sub(begun).Round(time.Second))
	if d.o.Timeout > 0 {
		head += " of " + d.o.Timeout.String()
	}
	lines = append(lines, d.o.Style.Bold(cut(head, d.o.Width)))
	for i, s := range steps {
		if room := d.o.Lines - len(lines); room <= 1 && len(steps)-i > room {
			lines = append(lines, d.o.Style.Dim(cut(fmt.Sprintf("  and %d more", len(steps)-i), d.o.Width)))
			break
		}
		text := cut("  "+d.line(now, s), d.o.Width)
		if s.State == verdict.Failed {
			text = d.o.Style.Red(text)
		}
		lines = append(lines, text)
	}
	for _, l := range lines {
		b.WriteString(l)
		b.WriteByte('\n')
	}
	d.drawn = len(lines)
	_, _ = io.WriteString(d.o.Out, b.String())
}

// erase moves to the first line that was drawn, and clears from there.
func (d *Display) erase(b *strings.Builder) {
	if d.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\r\x1b[J", d.drawn)
	}
	d.drawn = 0
}

// Close takes the drawn lines off the terminal, so that the answer stands in their place. Lines in a
// pipe stay.
func (d *Display) Close() {
	if d.o.Out == nil || d.drawn == 0 {
		return
	}
	var b strings.Builder
	d.erase(&b)
	_, _ = io.WriteString(d.o.Out, b.String())
}

// cut shortens a text to so many runes, since a line that wraps cannot be drawn again in place.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(0, width-1)]) + "…"
}
