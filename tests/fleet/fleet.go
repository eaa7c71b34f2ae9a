package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
)

// mix is the repeated sequence of node models. All have eight GPUs. The number of MIG instances is 0 on b200, 9 on
// h100x8, 11 on demo, and 56 on mig8x7. One GPU of demo is time-sliced.
var mix = []string{"b200", "h100x8", "b200", "demo", "h100x8", "b200", "mig8x7", "b200", "h100x8", "demo"}

// jobNodes is the number of consecutive nodes that run the same job.
const jobNodes = 16

// A node is a simulated machine with its exporter. The counters file is the chart's default.
type node struct {
	name, model string
	pages       exposition.Pages
	run         func(context.Context) error
	handler     http.Handler
	read        chan struct{} // closed after the first page with GPUs
}

func newNode(i int) (*node, error) {
	n := &node{name: fmt.Sprintf("gpu-%04d", i), model: mix[i%len(mix)], read: make(chan struct{})}
	model, err := sim.LoadNode(n.model)
	if err != nil {
		return nil, err
	}
	for p := range model.Pods {
		pod := &model.Pods[p]
		pod.Pod = fmt.Sprintf("%s-%d-%d", pod.Pod, i/jobNodes, i%jobNodes)
		if pod.Job != "" {
			pod.Job = fmt.Sprint(40_000 + i/jobNodes)
		}
	}
	source, err := sim.New(sim.Options{Model: model, Seed: uint64(i)})
	if err != nil {
		return nil, err
	}
	counters, _ := etc.File(etc.HealthName)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter := pages.Run{Source: source, Host: n.name, Counters: counters, Interval: interval, Registry: registry}
	read := sync.OnceFunc(func() { close(n.read) })
	n.run, err = exporter.New(func(s *gpu.Snapshot, page *exposition.Page) {
		n.pages.Publish(page, s.ValidFor)
		if s.Topology != nil {
			read()
		}
	})
	if err != nil {
		return nil, err
	}
	srv, err := server.New(server.Options{Current: n.pages.Current, Registerer: registry,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	n.handler = http.StripPrefix("/"+n.name, srv.Handler())
	return n, nil
}

// fleet serves the pages of all nodes, each below the node's name, and the list of targets.
type fleet struct {
	nodes []*node
	http.ServeMux
}

func newFleet(nodes int) (*fleet, error) {
	f := &fleet{}
	for i := range nodes {
		n, err := newNode(i)
		if err != nil {
			return nil, err
		}
		f.nodes = append(f.nodes, n)
		f.Handle("/"+n.name+"/", n.handler)
	}
	f.HandleFunc("GET /targets", f.serveTargets)
	return f, nil
}

// run runs the exporters until ctx is done. Their cycles are spread evenly over the interval.
func (f *fleet) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, n := range f.nodes {
		group.Go(func() error {
			select {
			case <-time.After(interval * time.Duration(i) / time.Duration(len(f.nodes))):
				return n.run(ctx)
			case <-ctx.Done():
				return nil
			}
		})
	}
	return group.Wait()
}

// awaitPages waits until each node has a page with its GPUs.
func (f *fleet) awaitPages(ctx context.Context) error {
	for _, n := range f.nodes {
		select {
		case <-n.read:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// models lists the models of the nodes, each once.
func (f *fleet) models() (kinds []string) {
	for _, n := range f.nodes {
		if !slices.Contains(kinds, n.model) {
			kinds = append(kinds, n.model)
		}
	}
	return kinds
}

// A targetGroup is an element of an http_sd list.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// serveTargets serves the http_sd list of the nodes.
func (f *fleet) serveTargets(w http.ResponseWriter, r *http.Request) {
	groups := make([]targetGroup, len(f.nodes))
	for i, n := range f.nodes {
		groups[i] = targetGroup{[]string{r.Host}, map[string]string{
			"__metrics_path__": "/" + n.name + "/metrics", "instance": n.name + ":9400", "node": n.name,
		}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(groups) // a client that has disconnected needs no answer
}
