package app

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pipe is read until its writer closes it. If nothing writes, an error says so.
func TestPipes(t *testing.T) {
	pipe := func(t *testing.T) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("written", func(t *testing.T) {
		path := pipe(t)
		written := make(chan error)
		go func() { // the open waits for the reader
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			for _, line := range []string{"one\n", "two\n"} {
				if err == nil {
					_, err = file.WriteString(line)
				}
			}
			written <- err
			file.Close()
		}()
		read := make(chan string)
		go func() {
			content, err := (&Reader{wait: time.Minute}).ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			read <- string(content)
		}()
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		if got := <-read; got != "one\ntwo\n" {
			t.Errorf("content %q, want both lines", got)
		}
	})
	unwritten := func(t *testing.T, path string) {
		t.Helper()
		_, err := (&Reader{wait: 50 * time.Millisecond}).ReadFile(path)
		want := path + ": no complete file was written to this pipe within 50ms"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ReadFile: error = %v, want that no complete file was written to %s", err, path)
		}
	}
	t.Run("no writer", func(t *testing.T) { unwritten(t, pipe(t)) })
	t.Run("a writer that writes nothing", func(t *testing.T) {
		path := pipe(t)
		writer, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		unwritten(t, path)
	})
}
