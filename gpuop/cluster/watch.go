package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// pollEvery is between two lists of a kind that is not watched: its lists are short.
	pollEvery = 2 * time.Second
	// missingEvery is between two tries to list a kind that is missing.
	missingEvery = 5 * time.Second
	// gather is how long changes are collected into one State.
	gather = 200 * time.Millisecond
	// watchFor is when the server ends a watch, which is then resumed.
	watchFor = "290"
)

// Watch yields the State of the kinds as Read does, and again after changes, with At as the time when it
// changed; changes that come together are one State. It resumes after restarts of the API server.
// While the server is away it yields nil and an error that wraps ErrUnreachable, once for each time;
// only where the first Read fails, the error is the last that is yielded. It ends with ctx. The
// slices of a State are its own, their objects are shared with the States that follow.
func (c *Client) Watch(ctx context.Context, kinds ...Kind) iter.Seq2[*State, error] {
	return func(yield func(*State, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		w := &watching{client: c, changes: make(chan change), trim: newTrimmer(c.opt.ManagedFields)}
		defer w.followers.Wait()
		defer cancel()
		s, versions, err := c.read(ctx, kinds)
		if err != nil {
			if ctx.Err() == nil {
				yield(nil, err)
			}
			return
		}
		w.state = s
		w.trim.learn(s)
		for _, k := range slices.Compact(slices.Sorted(slices.Values(kinds))) {
			w.relist = append(w.relist, relist{k, make(chan struct{}, 1)})
			f := &follower{watching: w, kind: k, list: lists[k], version: versions[k], namespace: s.Namespace, again: w.relist[len(w.relist)-1].request}
			w.followers.Go(func() { f.run(ctx) })
		}
		if !yield(w.shared(kinds), nil) {
			return
		}
		w.run(ctx, kinds, yield)
	}
}

// A watching is one Watch on its way. Its state belongs to the goroutine of Watch.
type watching struct {
	client    *Client
	state     *State
	trim      *trimmer
	changes   chan change
	followers sync.WaitGroup
	relist    []relist
}

type relist struct {
	kind    Kind
	request chan struct{}
}

// A change is what a follower found.
type change struct {
	kind    Kind
	object  runtime.Object // added or changed, or deleted
	deleted bool
	whole   *State   // a new list, in place of an object
	missing *Missing // the list is missing; whole is not set
	away    error    // the server is; nothing else is set
}

func (w *watching) run(ctx context.Context, kinds []Kind, yield func(*State, error) bool) {
	var due <-chan time.Time
	away := false
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-w.changes:
			if c.away != nil {
				if !away && !yield(nil, c.away) {
					return
				}
				away = true
				continue
			}
			if away {
				away = false
				due = time.After(gather)
			}
			if w.apply(c) && due == nil {
				due = time.After(gather)
			}
		case <-due:
			due = nil
			w.state.At = time.Now()
			if !yield(w.shared(kinds), nil) {
				return
			}
		}
	}
}

// apply takes over a change, and reports whether it is one.
func (w *watching) apply(c change) bool {
	l := lists[c.kind]
	at := slices.IndexFunc(w.state.Missing, func(m Missing) bool { return m.Kind == c.kind })
	changed := true
	switch {
	case c.missing != nil:
		changed = at < 0 || w.state.Missing[at] != *c.missing
		l.drop(w.state)
	case c.whole != nil:
		changed = at >= 0 || !l.equal(w.state, c.whole)
		l.share(w.state, c.whole)
	default:
		l.apply(w.state, w.trim, c.object, c.deleted)
	}
	if at >= 0 {
		w.state.Missing = slices.Delete(w.state.Missing, at, at+1)
	}
	if c.missing != nil {
		w.state.Missing = append(w.state.Missing, *c.missing)
	}
	if c.kind == Nodes && w.trim.learn(w.state) {
		// pods that were of no interest are now on a node with GPUs
		for _, r := range w.relist {
			if r.kind == Pods {
				select {
				case r.request <- struct{}{}:
				default:
				}
			}
		}
	}
	return changed
}

// shared returns the state with slices of its own.
func (w *watching) shared(kinds []Kind) *State {
	s := *w.state
	s.Missing = slices.Clone(w.state.Missing)
	for _, k := range kinds {
		lists[k].share(&s, w.state)
	}
	return &s
}

// A follower keeps one kind up to date.
type follower struct {
	*watching
	kind      Kind
	list      list
	namespace string
	version   string // of the list; empty before there is one
	again     <-chan struct{}
	away      bool // the server was, when it was last requested: a list says that it is back
}

func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		switch {
		case f.away:
			f.relistNow(ctx)
		case f.version == "":
			f.pause(ctx, missingEvery)
			f.relistNow(ctx)
		case f.list.apply == nil:
			f.pause(ctx, pollEvery)
			f.relistNow(ctx)
		default:
			f.watch(ctx)
		}
	}
}

func (f *follower) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-f.again:
	case <-time.After(d):
	}
}

func (f *follower) send(ctx context.Context, c change) {
	c.kind = f.kind
	select {
	case <-ctx.Done():
	case f.changes <- c:
	}
}

// relistNow lists the kind again.
func (f *follower) relistNow(ctx context.Context) {
	f.away = false
	into := &State{}
	version, err := f.client.list(ctx, f.list, f.namespace, into, f.trim, func() error { return nil })
	switch {
	case ctx.Err() != nil:
	case err == nil:
		f.version = version
		f.send(ctx, change{whole: into})
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		f.version = ""
		m := missing(f.kind, err)
		f.send(ctx, change{missing: &m})
	default:
		f.lost(ctx, err)
	}
}

// lost says that the server is away, and waits.
func (f *follower) lost(ctx context.Context, err error) {
	f.away = true
	f.send(ctx, change{away: fmt.Errorf("%w: %w", ErrUnreachable, err)})
	f.pause(ctx, between)
}

// watch follows the kind from its version until the watch ends.
func (f *follower) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	path := f.list.path
	if f.list.namespaced() {
		path = fmt.Sprintf(path, f.namespace)
	}
	request := f.client.typed.Get().AbsPath(path).MaxRetries(0).Param("watch", "true").Param("resourceVersion", f.version).
		Param("allowWatchBookmarks", "true").Param("timeoutSeconds", watchFor)
	for name, value := range f.list.parameters {
		request = request.Param(name, value)
	}
	events, err := request.Watch(ctx)
	if err != nil {
		f.interrupted(ctx, err)
		return
	}
	defer events.Stop()
	began, heard := time.Now(), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.again:
			f.relistNow(ctx)
			return
		case e, open := <-events.ResultChan():
			if !open {
				if !heard && time.Since(began) < between {
					// The server hangs up, or client-go has made an empty watch of a connection that
					// broke off: a list says which.
					f.pause(ctx, between)
					f.relistNow(ctx)
				}
				return
			}
			heard = true
			if e.Type == watch.Error {
				f.interrupted(ctx, apierrors.FromObject(e.Object))
				return
			}
			about, ok := e.Object.(metav1.Object)
			if !ok {
				continue
			}
			f.version = about.GetResourceVersion()
			if e.Type != watch.Bookmark {
				f.send(ctx, change{object: e.Object, deleted: e.Type == watch.Deleted})
			}
		}
	}
}

// interrupted goes on after a watch that was refused or broke off.
func (f *follower) interrupted(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		f.relistNow(ctx)
	case apierrors.IsForbidden(err): // list is granted, and watch is not
		f.pause(ctx, pollEvery)
		f.relistNow(ctx)
	case answered(err):
		f.pause(ctx, between)
		f.relistNow(ctx)
	default:
		f.lost(ctx, errors.New(reason(f.client, err)))
	}
}
