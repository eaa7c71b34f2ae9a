package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A program is a server on loopback that answers queries like Prometheus.
type program struct {
	v1.API
	url  string
	ends func() // stops the program and waits for it
}

// start starts the program at path with the arguments that flags returns for a free loopback address. It waits until
// the program answers a GET of the path ready. The output goes to the file log.
func start(ctx context.Context, path, ready, log string, flags func(address string) []string) (*program, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // reserve a free port
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, path, flags(address)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	exited := make(chan struct{})
	go func() { defer close(exited); _ = cmd.Wait() }()
	p := &program{url: "http://" + address, ends: func() { cancel(); <-exited }}
	client, err := api.NewClient(api.Config{Address: p.url})
	if err != nil {
		p.ends()
		return nil, err
	}
	p.API = v1.NewAPI(client)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := p.get(ready); err == nil {
			return p, nil
		}
		select {
		case <-tick.C:
		case <-exited:
			cancel()
			said, _ := os.ReadFile(log)
			return nil, fmt.Errorf("%s exited:\n%s", strings.Join(cmd.Args, " "), said)
		}
	}
}

// get returns the body at a path.
func (p *program) get(path string) ([]byte, error) {
	response, err := http.Get(p.url + path)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
	return body, err
}

// metrics returns the program's own counters and gauges by name, summed over labels.
func (p *program) metrics() (map[string]float64, error) {
	page, err := p.get("/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(page)))
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for name, f := range families {
		all[name] = sum(f)
	}
	return all, nil
}

func sum(f *dto.MetricFamily) (v float64) {
	for _, m := range f.Metric {
		v += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return v
}

// ask runs an instant query. If over is not zero, it runs a range query that ends now and begins that much earlier.
func (p *program) ask(ctx context.Context, query string, over time.Duration) (answer model.Value, err error) {
	if now := time.Now(); over > 0 {
		answer, _, err = p.QueryRange(ctx, query, v1.Range{Start: now.Add(-over), End: now, Step: interval})
	} else {
		answer, _, err = p.Query(ctx, query, now)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", query, err)
	}
	return answer, err
}

// number returns the sum of the newest values of all series of an answer.
func number(answer model.Value) (sum float64) {
	switch a := answer.(type) {
	case model.Vector:
		for _, s := range a {
			sum += float64(s.Value)
		}
	case model.Matrix:
		for _, s := range a {
			sum += float64(s.Values[len(s.Values)-1].Value)
		}
	}
	return sum
}

// block describes the TSDB block that contains all samples of a Prometheus server.
type block struct {
	Stats         struct{ NumSamples, NumSeries float64 }
	chunks, index float64 // in bytes
}

// block takes a snapshot and describes its block. It is an error if the snapshot does not have exactly one block.
func (p *program) block(ctx context.Context, data string) (*block, error) {
	if _, err := p.Snapshot(ctx, false); err != nil {
		return nil, err
	}
	metas, err := filepath.Glob(filepath.Join(data, "snapshots", "*", "*", "meta.json"))
	if err != nil || len(metas) != 1 {
		return nil, fmt.Errorf("the snapshot has %d blocks, expected 1 (error %v)", len(metas), err)
	}
	meta, err := os.ReadFile(metas[0])
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(metas[0])
	b := &block{chunks: length(filepath.Join(dir, "chunks")), index: length(filepath.Join(dir, "index"))}
	return b, json.Unmarshal(meta, b)
}

// length returns the size of a file, or the total size of the files below a folder.
func length(path string) (n float64) {
	_ = filepath.Walk(path, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			n += float64(info.Size())
		}
		return nil // ignore errors: a file may have been deleted meanwhile
	})
	return n
}
