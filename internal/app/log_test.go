package app_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
)

// A stallable is a writer that waits while a test has it wait.
type stallable struct {
	bytes.Buffer
	stalled chan struct{} // closed when it goes on
}

func (s *stallable) Write(p []byte) (int, error) {
	<-s.stalled
	return s.Buffer.Write(p)
}

func TestLogWriterKeepsTheOrder(t *testing.T) {
	var out bytes.Buffer
	w := app.NewLogWriter(&out)
	defer w.Close()
	var want strings.Builder
	for i := range 500 {
		fmt.Fprintf(w, "line %d\n", i)
		fmt.Fprintf(&want, "line %d\n", i)
	}
	w.Flush(time.Minute)
	if out.String() != want.String() || w.Dropped() != 0 {
		t.Errorf("%d dropped, and written:\n%s", w.Dropped(), out.String())
	}
}

// While nothing is written a writer of lines never waits, memory is bounded, and what does not fit
// is counted. What fits is written once that is possible.
func TestLogWriterThatIsStalled(t *testing.T) {
	for _, c := range []struct {
		name       string
		size, most int // of a line, and lines that are kept
	}{
		{"many lines", 20, 1025},
		{"long lines", 100_000, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &stallable{stalled: make(chan struct{})}
				w := app.NewLogWriter(out)
				defer w.Close()
				begin := time.Now()
				const written = 5000
				for i := range written {
					fmt.Fprintf(w, "%0*d\n", c.size-1, i)
				}
				w.Flush(3 * time.Second)
				if took := time.Since(begin); took != 3*time.Second {
					t.Errorf("writing and Flush took %v, want the limit of Flush alone", took)
				}
				dropped := int(w.Dropped())
				if kept := written - dropped; kept > c.most || kept < c.most-1 {
					t.Errorf("%d lines kept, want %d", kept, c.most)
				}
				close(out.stalled)
				w.Flush(time.Minute)
				synctest.Wait()
				if lines := strings.Count(out.String(), "\n"); lines != written-dropped || !strings.HasPrefix(out.String(), "00") {
					t.Errorf("%d lines written, %d dropped of %d", lines, dropped, written)
				}
				dropped = int(w.Dropped())
				fmt.Fprintln(w, "again")
				w.Flush(time.Minute)
				if !strings.HasSuffix(out.String(), "again\n") || int(w.Dropped()) != dropped {
					t.Error("it stays stalled")
				}
			})
		})
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestLogWriterThatFails(t *testing.T) {
	w := app.NewLogWriter(broken{})
	defer w.Close()
	for range 3 {
		if n, err := w.Write([]byte("line\n")); n != 5 || err != nil {
			t.Errorf("Write: %d, %v", n, err)
		}
	}
	w.Flush(time.Minute)
	if w.Dropped() != 3 {
		t.Errorf("%d dropped, want 3", w.Dropped())
	}
}
