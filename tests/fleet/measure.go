package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"
)

// config is the configuration of Prometheus. The first %s is the address of the fleet, and the second one the path of
// the rules file. The path is empty for the server without rules.
const config = `global:
  scrape_interval: 30s
  evaluation_interval: 30s
scrape_configs:
  - job_name: dcgm-exporter
    honor_labels: true
    http_sd_configs:
      - url: http://%s/targets
rule_files: [%s]
`

// warmup is the time before the measurement. Each node is scraped at least once during it.
const warmup = time.Minute

// A measurement holds the results for one Prometheus and the nodes that it scraped.
type measurement struct {
	series, recorded  float64 // series in memory; series that the rules record
	samples           float64 // per second
	cpu, memory, peak float64 // CPU seconds per second; final and peak memory in bytes
	log               float64 // bytes per sample in the write-ahead log
	block             *block
	failed, p50, p99  float64         // failed scrapes; quantiles of the scrape duration in seconds
	rules             float64         // total duration of the latest evaluation of all rule groups, in seconds
	missed            float64         // missed evaluations
	ownCPU, ownMemory float64         // CPU in seconds per second, and memory in bytes, of this process with all nodes
	took              []time.Duration // duration of each dashboard query
	instead           []time.Duration // duration of each query.recorded; 0 if it is empty or the server has no rules
}

// measure runs the measurement and prints the tables.
func measure(ctx context.Context, f *fleet, address, path string, span time.Duration) error {
	if err := f.awaitPages(ctx); err != nil {
		return err
	}
	progress("%d nodes serve http://%s/targets", len(f.nodes), address)
	queries, err := dashboardQueries("grafana/fleet.json")
	if err != nil {
		return err
	}
	rules, err := filepath.Abs("deployment/rules/recording.yml")
	if err != nil {
		return err
	}
	var turn sync.Mutex // serializes queries
	var results [2]*measurement
	group, ctx := errgroup.WithContext(ctx)
	for i, rules := range []string{"", rules} {
		group.Go(func() (err error) {
			results[i], err = measureOne(ctx, &turn, address, path, rules, span, queries)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return report(os.Stdout, f, span, queries, results[0], results[1])
}

func measureOne(ctx context.Context, turn *sync.Mutex, address, path, rules string, span time.Duration,
	queries []query) (*measurement, error) {
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, data := filepath.Join(dir, "prometheus.yml"), filepath.Join(dir, "data")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, address, rules), 0o600); err != nil {
		return nil, err
	}
	p, err := start(ctx, path, "/-/ready", filepath.Join(dir, "log"), func(address string) []string {
		return []string{"--config.file=" + file, "--storage.tsdb.path=" + data, "--web.listen-address=" + address,
			"--web.enable-admin-api"}
	})
	if err != nil {
		return nil, err
	}
	defer p.ends()
	progress("Prometheus at %s for %v, rules %q", p.url, span, rules)
	m := &measurement{}
	if err := m.watch(ctx, p, data, span); err != nil {
		return nil, err
	}
	turn.Lock()
	defer turn.Unlock()
	if err := m.ask(ctx, p, span, queries, rules != ""); err != nil {
		return nil, err
	}
	progress("Queries done; writing the block")
	m.block, err = p.block(ctx, data)
	return m, err
}

// watch reads the metrics of Prometheus and of this process until the span ends. Rates are over the time after the
// warmup. The peak memory includes the warmup.
func (m *measurement) watch(ctx context.Context, p *program, data string, span time.Duration) error {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var first, last map[string]float64
	var since time.Time
	var firstOwn float64
	end := time.NewTimer(span)
	defer end.Stop()
	measuring := time.NewTimer(warmup)
	defer measuring.Stop()
	look := time.NewTicker(5 * time.Second)
	defer look.Stop()
	read := func() error {
		now, err := p.metrics()
		if err != nil {
			return err
		}
		families, err := own.Gather()
		if err != nil {
			return err
		}
		for _, f := range families {
			switch f.GetName() {
			case "process_cpu_seconds_total":
				m.ownCPU = sum(f)
			case "process_resident_memory_bytes":
				m.ownMemory = sum(f)
			}
		}
		last, m.peak = now, max(m.peak, now["process_resident_memory_bytes"])
		return nil
	}
	for running := true; running; {
		begins := false
		select {
		case <-look.C:
		case <-measuring.C:
			begins = true
		case <-end.C:
			running = false
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := read(); err != nil {
			return err
		}
		if begins {
			first, firstOwn, since = last, m.ownCPU, time.Now()
		}
	}
	seconds := time.Since(since).Seconds()
	const cpu, appended = "process_cpu_seconds_total", "prometheus_tsdb_head_samples_appended_total"
	m.cpu = (last[cpu] - first[cpu]) / seconds
	m.ownCPU = (m.ownCPU - firstOwn) / seconds
	m.samples = (last[appended] - first[appended]) / seconds
	m.memory = last["process_resident_memory_bytes"]
	m.series = last["prometheus_tsdb_head_series"]
	m.rules, m.missed = last["prometheus_rule_group_last_duration_seconds"],
		last["prometheus_rule_group_iterations_missed_total"]
	m.log = length(filepath.Join(data, "wal")) / last[appended]
	return nil
}

// A query runs repeats times, but only once if its first answer takes longer than slow.
const (
	repeats = 3
	slow    = 5 * time.Second
)

// failed is the duration of a query that failed.
const failed = time.Duration(-1)

// ask measures the queries. It also asks for the number of recorded series, and for the duration and the failures of
// scrapes.
func (m *measurement) ask(ctx context.Context, p *program, span time.Duration, queries []query, rules bool) error {
	lost, err := p.ask(ctx,
		`sum(count_over_time(up{job="dcgm-exporter"}[1h]) - sum_over_time(up{job="dcgm-exporter"}[1h]))`, 0)
	if err != nil {
		return err
	}
	m.failed = number(lost)
	made, err := p.ask(ctx, `count({__name__=~".+:.+"})`, 0)
	if err != nil {
		return err
	}
	m.recorded = number(made)
	scrapes, err := p.ask(ctx, `scrape_duration_seconds{job="dcgm-exporter"}[5m]`, 0)
	if err != nil {
		return err
	}
	var seconds []float64
	for _, s := range scrapes.(model.Matrix) {
		for _, v := range s.Values {
			seconds = append(seconds, float64(v.Value))
		}
	}
	if len(seconds) == 0 {
		return fmt.Errorf("no node was scraped by Prometheus at %s", p.url)
	}
	slices.Sort(seconds)
	m.p50, m.p99 = seconds[len(seconds)/2], seconds[len(seconds)*99/100]

	m.took, m.instead = make([]time.Duration, len(queries)), make([]time.Duration, len(queries))
	for i, q := range queries {
		over := span
		if q.Instant {
			over = 0
		}
		var answer, other model.Value
		m.took[i], answer = p.time(ctx, q.Expr, over)
		if !rules || q.recorded == "" {
			continue
		}
		m.instead[i], other = p.time(ctx, q.recorded, over)
		if a, b := number(answer), number(other); max(a, b) > 1.02*min(a, b) {
			progress("%s: sum of the result = %v from device series, but %v from recorded series", q.title, a, b)
		}
	}
	return nil
}

// time runs a query several times and returns the median duration and the last answer. A slow query runs only once. If
// the query fails, time returns failed and no answer.
func (p *program) time(ctx context.Context, query string, over time.Duration) (time.Duration, model.Value) {
	var all []time.Duration
	for {
		begin := time.Now()
		answer, err := p.ask(ctx, query, over)
		if err != nil {
			progress("%v", err)
			return failed, nil
		}
		all = append(all, time.Since(begin))
		if len(all) == repeats || all[0] > slow {
			slices.Sort(all)
			return all[len(all)/2], answer
		}
	}
}
