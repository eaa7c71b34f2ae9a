// Package gauge provides a gauge for states: all of its series are replaced at once.
package gauge

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// A State is a gauge whose series are replaced atomically. Unlike with the Reset of a GaugeVec, no scrape sees a
// partial state. It is safe for concurrent use.
type State struct {
	desc   *prometheus.Desc
	series atomic.Pointer[[]prometheus.Metric]
}

// A Series is one value of a State, with its label values in order.
type Series struct {
	Value  float64
	Labels []string
}

// NewState returns a State without series.
func NewState(name, help string, labels ...string) *State {
	s := &State{desc: prometheus.NewDesc(name, help, labels, nil)}
	s.Set()
	return s
}

// Set replaces all series. No two may have the same labels.
func (s *State) Set(series ...Series) {
	metrics := make([]prometheus.Metric, len(series))
	for i, x := range series {
		metrics[i] = prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, x.Value, x.Labels...)
	}
	s.series.Store(&metrics)
}

// Describe and Collect implement prometheus.Collector.
func (s *State) Describe(descs chan<- *prometheus.Desc) { descs <- s.desc }

// Collect sends the series.
func (s *State) Collect(metrics chan<- prometheus.Metric) {
	for _, m := range *s.series.Load() {
		metrics <- m
	}
}
