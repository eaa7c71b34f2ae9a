package prom

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/protobuf/encoding/protowire"
)

// patience bounds every wait; it is no claim about speed.
const patience = 90 * time.Second

// A Server is a Prometheus that runs, on loopback.
type Server struct {
	// URL is its address.
	URL string
	t   testing.TB
}

// Start runs a Prometheus with a configuration, a folder for its data and further flags until the
// test ends. It skips the test where there is none, as Program does.
func Start(t testing.TB, dir, configuration string, flags ...string) *Server {
	t.Helper()
	path := Program(t, "prometheus")
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(config, []byte(configuration), 0o644); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	log, err := os.Create(filepath.Join(t.TempDir(), "prometheus.log"))
	if err != nil {
		t.Fatal(err)
	}
	said := func() []byte {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			return []byte(err.Error())
		}
		return text
	}
	cmd := exec.Command(path, append(flags, "--config.file="+config, "--storage.tsdb.path="+dir,
		"--web.listen-address=127.0.0.1:"+port, "--log.level=warn", "--query.lookback-delta=5m")...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is ended by a signal
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("the log of Prometheus:\n%s", said())
		}
		log.Close()
	})
	s := &Server{URL: "http://127.0.0.1:" + port, t: t}
	s.ready(ended, said)
	return s
}

// ready waits until it answers.
func (s *Server) ready(ended <-chan struct{}, said func() []byte) {
	s.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	last := ""
	for {
		resp, err := http.Get(s.URL + "/-/ready")
		if err == nil {
			resp.Body.Close()
			if last = resp.Status; resp.StatusCode == http.StatusOK {
				return
			}
		} else {
			last = err.Error()
		}
		select {
		case <-tick.C:
		case <-ended:
			s.t.Fatalf("prometheus ended:\n%s", said())
		case <-deadline:
			s.t.Fatalf("not ready in %v: %s", patience, last)
		}
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// A Point is a value at a time in Unix milliseconds.
type Point struct {
	At int64
	V  float64
}

// A Series is one with its samples, in ascending order.
type Series struct {
	Metric labels.Labels
	Points []Point
}

// Write sends the samples with from ≤ At < to by remote write 1.0; the server needs the flag
// --web.enable-remote-write-receiver. Prometheus takes samples in any order that keeps to an hour.
func (s *Server) Write(all []*Series, from, to int64) {
	s.t.Helper()
	var request []byte
	for _, x := range all {
		if one := x.encoded(from, to); one != nil {
			request = protowire.AppendBytes(protowire.AppendTag(request, 1, protowire.BytesType), one)
		}
	}
	if len(request) == 0 {
		return
	}
	// Snappy's format, with literals alone.
	body := binary.AppendUvarint(nil, uint64(len(request)))
	for chunk := range slices.Chunk(request, 1<<16) {
		body = append(body, 61<<2, byte(len(chunk)-1), byte((len(chunk)-1)>>8))
		body = append(body, chunk...)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/api/v1/write", bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if said, _ := io.ReadAll(resp.Body); resp.StatusCode/100 != 2 {
		s.t.Fatalf("remote write: %s: %s", resp.Status, said)
	}
}

// encoded is the series as a message of remote write, nil without a sample of the time.
func (x *Series) encoded(from, to int64) []byte {
	var series []byte
	x.Metric.Range(func(l labels.Label) {
		pair := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), l.Name)
		pair = protowire.AppendString(protowire.AppendTag(pair, 2, protowire.BytesType), l.Value)
		series = protowire.AppendBytes(protowire.AppendTag(series, 1, protowire.BytesType), pair)
	})
	some := false
	for _, p := range x.Points {
		if p.At < from || p.At >= to {
			continue
		}
		some = true
		one := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(p.V))
		one = protowire.AppendVarint(protowire.AppendTag(one, 2, protowire.VarintType), uint64(p.At))
		series = protowire.AppendBytes(protowire.AppendTag(series, 2, protowire.BytesType), one)
	}
	if !some {
		return nil
	}
	return series
}
