package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// pageSize is the number of objects in a page, kubectl's --chunk-size.
	pageSize = 500
	// largePage is for kinds whose objects are large: a release's Secret is up to 1 MiB.
	largePage = 25
	// parallel bounds the kinds that are listed at once.
	parallel = 4
	// defaultNamespace is where NVIDIA's documentation installs the operator.
	defaultNamespace = "gpu-operator"
)

func (s *State) holds(k Kind) bool {
	l, known := lists[k]
	return known && l.known(s)
}

// Read lists the kinds, each once, in pages. The lists of different kinds are not of one instant. A
// kind that may not be listed, is not served, or whose list broke off is nil and a row of Missing.
// The error wraps ErrUnreachable where the server does not answer or does not accept the
// credentials, and is the context's where that ends.
func (c *Client) Read(ctx context.Context, kinds ...Kind) (*State, error) {
	for _, k := range kinds {
		if _, known := lists[k]; !known {
			return nil, fmt.Errorf("%w: no kind %q", ErrInput, k)
		}
	}
	version, err := c.version(ctx)
	if err != nil {
		return nil, err
	}
	s := &State{Title: c.Server(), At: time.Now(), Version: version, Namespace: c.opt.Namespace}
	r := &reading{client: c, state: s, trim: newTrimmer(c.opt.ManagedFields)}
	// What a pod is kept for is known when the nodes and the operator's namespace are.
	phases := [3][]Kind{}
	for _, k := range kinds {
		phase := 0
		switch {
		case k == Pods:
			phase = 1
		case lists[k].namespaced():
			phase = 2
		}
		if !slices.Contains(phases[phase], k) {
			phases[phase] = append(phases[phase], k)
		}
	}
	for _, phase := range phases {
		if err := r.lists(ctx, phase); err != nil {
			return nil, err
		}
		s.findNamespace()
		r.trim.learn(s)
	}
	if r.gone != nil && r.read == 0 {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, r.gone)
	}
	s.Namespace = cmp.Or(s.Namespace, defaultNamespace)
	slices.SortFunc(s.Missing, func(a, b Missing) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
	return s, nil
}

// A reading is one Read on its way.
type reading struct {
	client *Client
	state  *State
	trim   *trimmer

	mu   sync.Mutex // for the rest, and state.Missing
	read int        // lists that were read
	gone error      // the server is known to be away
}

func (r *reading) lists(ctx context.Context, kinds []Kind) error {
	var all errgroup.Group
	all.SetLimit(parallel)
	for _, k := range kinds {
		all.Go(func() error { return r.list(ctx, k) })
	}
	return all.Wait()
}

// list lists one kind. Its error is the context's, or that of credentials that are not accepted.
func (r *reading) list(ctx context.Context, k Kind) error {
	namespace := cmp.Or(r.state.Namespace, defaultNamespace)
	err := r.pages(ctx, lists[k], namespace)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.read++
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if apierrors.IsUnauthorized(err) {
		return r.client.unreachable(err)
	}
	if !answered(err) && r.gone == nil {
		r.gone = err
	}
	r.state.Missing = append(r.state.Missing, missing(k, err))
	return nil
}

// missing explains the lack of a list.
func missing(k Kind, err error) Missing {
	m := Missing{Kind: k, Why: Failed, Detail: firstLine(err)}
	switch {
	case apierrors.IsForbidden(err):
		m.Why = Forbidden
	case apierrors.IsNotFound(err):
		m.Why, m.Detail = Absent, "the cluster does not serve "+string(k)+": its CustomResourceDefinition is not installed"
	}
	return m
}

func (r *reading) isGone() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone
}

// pages lists all pages of one kind. After an error the list is nil. A server that is gone is not requested again.
func (r *reading) pages(ctx context.Context, l list, namespace string) (err error) {
	defer func() {
		if err != nil {
			l.drop(r.state)
		}
	}()
	l.reset(r.state)
	for token := ""; ; {
		if err := r.isGone(); err != nil {
			return err
		}
		object := l.empty.DeepCopyObject()
		if err := r.client.page(ctx, l, namespace, token, object); err != nil {
			return err
		}
		err = meta.EachListItem(object, func(o runtime.Object) error { l.take(r.state, r.trim, o); return nil })
		about, isList := object.(metav1.ListInterface)
		if err != nil || !isList {
			return fmt.Errorf("%T is no list: %w", object, err)
		}
		if token = about.GetContinue(); token == "" {
			return nil
		}
	}
}

// page requests one page. client-go repeats a request that the server is too busy for.
func (c *Client) page(ctx context.Context, l list, namespace, token string, into runtime.Object) error {
	limited, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	path := l.path
	if l.namespaced() {
		path = fmt.Sprintf(path, namespace)
	}
	request := c.typed.Get().AbsPath(path).MaxRetries(1).Param("limit", strconv.Itoa(l.limit))
	for name, value := range l.parameters {
		request = request.Param(name, value)
	}
	if token != "" {
		request = request.Param("continue", token)
	}
	if l.accept != "" {
		request = request.SetHeader("Accept", l.accept)
	}
	err := request.Do(limited).Into(into)
	switch {
	case err == nil || ctx.Err() != nil || answered(err):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer within %s", c.Server(), pageTimeout)
	}
	return errors.New(strings.TrimPrefix(c.unreachable(err).Error(), ErrUnreachable.Error()+": "))
}
