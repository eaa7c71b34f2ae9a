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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// pageSize is the number of objects in a page; it equals the default of kubectl's --chunk-size.
	pageSize = 500
	// largePage is the page size for large objects: the Secret of a Helm release can be 1 MiB.
	largePage = 25
	// parallel limits how many kinds are listed at once.
	parallel = 4
	// defaultNamespace is the namespace in NVIDIA's installation instructions.
	defaultNamespace = "gpu-operator"
)

// Read lists each kind once, in pages; different kinds are read at slightly different times. A kind that cannot be read
// completely is nil in the state, and listed in Missing. The error wraps ErrUnreachable if /version gets no answer or
// an invalid one, if the server rejects the credentials, or if a request gets no answer and no kind could be read. It
// wraps ErrInput for an unknown kind. If ctx is canceled, Read returns ctx.Err().
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
	// the pods to keep depend on the nodes and on the operator's namespace; that namespace may only be known from a pod
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

// reading is the state of one call of Read.
type reading struct {
	client *Client
	state  *State
	trim   *trimmer

	mu   sync.Mutex // guards the fields below and state.Missing
	read int        // number of lists read
	gone error      // the first error of a request that got no answer from the server
}

func (r *reading) lists(ctx context.Context, kinds []Kind) error {
	var all errgroup.Group
	all.SetLimit(parallel)
	for _, k := range kinds {
		all.Go(func() error { return r.list(ctx, k) })
	}
	return all.Wait()
}

// list lists one kind, and records it as missing if that fails. It returns an error only if the context ends or the
// credentials are rejected.
func (r *reading) list(ctx context.Context, k Kind) error {
	namespace := cmp.Or(r.state.Namespace, defaultNamespace)
	err := r.pages(ctx, lists[k], namespace)
	if err == nil && k == CRDs {
		err = r.schemas(ctx)
	}
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

// missing describes why the list of kind k could not be read.
func missing(k Kind, err error) Missing {
	m := Missing{Kind: k, Why: Failed, Detail: firstLine(err)}
	switch {
	case apierrors.IsForbidden(err):
		m.Why = Forbidden
	case apierrors.IsNotFound(err):
		m.Why, m.Detail = Absent,
			"the cluster does not serve "+string(k)+": its CustomResourceDefinition is not installed"
	}
	return m
}

// pages reads all pages of a kind into the state. After an error, the kind's list is nil. If another request found the
// server unreachable, pages returns that error before it requests the next page.
func (r *reading) pages(ctx context.Context, l list, namespace string) (err error) {
	defer func() {
		if err != nil {
			l.drop(r.state)
		}
	}()
	l.reset(r.state)
	for token := ""; ; {
		r.mu.Lock()
		gone := r.gone
		r.mu.Unlock()
		if gone != nil {
			return gone
		}
		object := l.empty.DeepCopyObject()
		if err := r.client.page(ctx, l, namespace, token, object); err != nil {
			return err
		}
		list, err := meta.ListAccessor(object)
		if err != nil {
			return err
		}
		err = meta.EachListItem(object, func(o runtime.Object) error {
			l.take(r.state, r.trim, o)
			return nil
		})
		if err != nil {
			return err
		}
		if token = list.GetContinue(); token == "" {
			return nil
		}
	}
}

// schemas reads the operator's CRDs again, with their schemas.
func (r *reading) schemas(ctx context.Context) error {
	l := lists[CRDs]
	l.accept = runtime.ContentTypeJSON
	for i := range r.state.CRDs {
		c := &r.state.CRDs[i]
		if !c.ofOperator() {
			continue
		}
		l.parameters = map[string]string{"fieldSelector": "metadata.name=" + c.Name}
		var found unstructured.UnstructuredList
		if err := r.client.page(ctx, l, "", "", &found); err != nil {
			return err
		}
		for _, o := range found.Items {
			if o.GetName() == c.Name {
				*c, _ = r.trim.crd(&o)
			}
		}
	}
	return nil
}

// page requests one page. client-go retries once if the server is overloaded.
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
	case limited.Err() != nil:
		return fmt.Errorf("%s did not answer within %s", c.Server(), pageTimeout)
	}
	return errors.New(strings.TrimPrefix(c.unreachable(err).Error(), ErrUnreachable.Error()+": "))
}
