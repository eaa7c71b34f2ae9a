package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/recording"
)

const (
	// grace is for a call that heeds its deadline and says so in its own words.
	grace = time.Second
	// ownersLimit bounds the wait for an attributor.
	ownersLimit = 5 * time.Second
)

// errInterrupted is the end of a recording that was interrupted.
var errInterrupted = errors.New("interrupted")

// A driver makes the calls of a session, one after another, on one goroutine, and closes the
// session there when it is done with, also after a call whose caller has left.
type driver struct {
	jobs    chan func()
	over    chan error // the error of Close
	limit   time.Duration
	session collector.Session // the goroutine's, and the caller's behind a call
	stuck   bool              // a call is under way whose caller has left
}

func newDriver(limit time.Duration) *driver {
	if limit == 0 {
		limit = defaultLimit
	}
	d := &driver{jobs: make(chan func(), 1), over: make(chan error, 1), limit: limit}
	go func() {
		for job := range d.jobs {
			job()
		}
		var err error
		if d.session != nil {
			err = d.session.Close()
		}
		d.over <- err
	}()
	return d
}

// call makes a call and waits for it; what names it.
func (d *driver) call(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	done := make(chan error, 1)
	d.jobs <- func() { done <- f(ctx) }
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	wait := time.NewTimer(grace)
	defer wait.Stop()
	select {
	case err := <-done:
		return err
	case <-wait.C:
		d.stuck = true
		return fmt.Errorf("%s: %w: no answer within %v", what, gpu.ErrTimeout, d.limit)
	}
}

// close closes the session, and waits for that no longer than for a call, nor at all behind one
// that does not return.
func (d *driver) close() error {
	close(d.jobs)
	if d.stuck {
		return nil
	}
	wait := time.NewTimer(d.limit)
	defer wait.Stop()
	select {
	case err := <-d.over:
		return err
	case <-wait.C:
		return fmt.Errorf("close: %w: no answer within %v", gpu.ErrTimeout, d.limit)
	}
}

// record opens the source and reads it n times. The error says why there are fewer reads; without
// any there is no recording.
func (c Command) record(ctx context.Context, source app.Backend, plan *gpu.Plan, n int) (*recording.Recording, error) {
	d := newDriver(c.Limit)
	rec, err := c.capture(ctx, d, source, plan, n)
	err = errors.Join(err, d.close())
	if rec == nil || len(rec.Reads) == 0 {
		return nil, err
	}
	pods(source.PodOf, rec)
	return rec, err
}

func (c Command) capture(ctx context.Context, d *driver, source app.Backend, plan *gpu.Plan, n int) (*recording.Recording, error) {
	if err := d.call(ctx, "open", func(ctx context.Context) (err error) {
		d.session, err = source.Source.Open(ctx, plan)
		return err
	}); err != nil {
		return nil, err
	}
	session := d.session
	topology := session.Topology()
	rec := recording.New(topology, plan)
	c.owners(ctx, source.Attributors, topology, rec)
	b := gpu.Batch{RequestProcesses: make([]bool, len(topology.Devices))}
	for row := range topology.Devices {
		kind := topology.Devices[row].Entity.Kind
		b.RequestProcesses[row] = kind == gpu.KindGPU || kind == gpu.KindGPUInstance
	}
	tick := time.NewTicker(plan.Interval)
	defer tick.Stop()
	for i := range n {
		if i > 0 {
			select {
			case <-ctx.Done():
				return rec, errInterrupted
			case <-session.Done():
				return rec, fmt.Errorf("the session ended: %w", session.Err())
			case <-tick.C:
			}
		}
		b.Reset()
		if err := d.call(ctx, "read", func(ctx context.Context) error { return session.Read(ctx, &b) }); err != nil {
			return rec, err
		}
		rec.Add(time.Now(), &b)
	}
	return rec, nil
}

// owners records who uses the entities, as far as the attributors answer.
func (c Command) owners(ctx context.Context, attributors []collector.Attributor, t *gpu.Topology, rec *recording.Recording) {
	for _, a := range attributors {
		within, cancel := context.WithTimeout(ctx, ownersLimit)
		owners, err := a.Attribute(within, t)
		cancel()
		if err != nil {
			fmt.Fprintf(c.Err, "Owners are not recorded: %s: %v\n", a.Name(), err)
			continue
		}
		rec.AddOwners(a.Name(), owners)
	}
}

// pods records which pods the recorded processes belong to.
func pods(podOf accounting.PodOf, rec *recording.Recording) {
	if podOf == nil {
		return
	}
	for i := range rec.Reads {
		for _, p := range rec.Reads[i].Processes {
			if uid, err := podOf(p.PID); err == nil && uid != "" {
				rec.Pods[p.PID] = uid
			}
		}
	}
}
