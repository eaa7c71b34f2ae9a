package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

// Series report whether the latest reload succeeded, when the last successful one was, and the hash of the active
// settings.
func TestReloadSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hash uint64
		var err error
		apply := func(context.Context) (uint64, error) { return hash, err }
		r := newReloader(prometheus.NewRegistry(), slog.New(slog.DiscardHandler), apply)
		series := func() [3]float64 {
			return [3]float64{testutil.ToFloat64(r.successful), testutil.ToFloat64(r.at), testutil.ToFloat64(r.hash)}
		}
		is := func(what string, want [3]float64) {
			t.Helper()
			if diff := cmp.Diff(want, series()); diff != "" {
				t.Errorf("%s: success, time, hash (-want +got):\n%s", what, diff)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		hangup := make(chan os.Signal)
		go r.run(ctx, hangup)
		now := func() float64 { return float64(time.Now().UnixNano()) / 1e9 }

		start := now()
		r.setActiveHash(7)
		is("start", [3]float64{1, start, 7})
		time.Sleep(time.Hour)
		hash, err = 8, errors.New("bad")
		if got := r.reload(ctx, "test"); !errors.Is(got, err) {
			t.Errorf("reload: error = %v, want %v", got, err)
		}
		is("refused", [3]float64{0, start, 7})
		err = nil
		hangup <- syscall.SIGHUP
		synctest.Wait()
		is("SIGHUP", [3]float64{1, now(), 8})

		// A failure that may be transient is retried at growing intervals until it succeeds.
		var at []int
		begin := time.Now()
		var passed atomic.Bool
		r.apply = func(context.Context) (uint64, error) {
			over := passed.Load()
			at = append(at, seconds(time.Since(begin)))
			if over {
				return 9, nil
			}
			return 9, retryable{errors.New("busy")}
		}
		if got := r.reload(ctx, "test"); !strings.Contains(got.Error(), "busy") {
			t.Errorf("reload: error = %v, want the retryable error busy", got)
		}
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]int{0, 1, 3, 7, 15, 31, 61, 91}, at); diff != "" {
			t.Errorf("attempts, in seconds (-want +got):\n%s", diff)
		}
		before := testutil.ToFloat64(r.at)
		is("tried again", [3]float64{0, before, 8})
		passed.Store(true)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if s := series(); s[0] != 1 || s[1] <= before || s[2] != 9 {
			t.Errorf("success, time, hash after the retry = %v; want 1, a time after %v, 9", s, before)
		}
		n := len(at)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(at) != n {
			t.Errorf("attempts after the success = %d, want 0", len(at)-n)
		}
		cancel()
		synctest.Wait()
	})
}

func seconds(d time.Duration) int { return int(d.Round(time.Second) / time.Second) }

// Every file that a reload reads is watched, and no other.
func TestWatchedFiles(t *testing.T) {
	read := func(string) ([]byte, error) { return []byte("version: 1\n"), nil }
	noEnv := func(string) (string, bool) { return "", false }
	for _, test := range []struct{ args, want []string }{
		{[]string{"-f", "counters.csv"}, []string{"counters.csv"}},
		{
			[]string{"--config-file=c.yaml", "-f", "counters.csv", "--source=sim", "--sim-scenario=faults.yaml"},
			[]string{"c.yaml", "counters.csv", "faults.yaml"},
		},
	} {
		cfg, err := config.Parse(test.args, noEnv, read)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, watched(cfg)); diff != "" {
			t.Errorf("watched files with %q (-want +got):\n%s", test.args, diff)
		}
	}
}

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
			t.Errorf("ReadFile: error = %v, want %s", err, want)
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
