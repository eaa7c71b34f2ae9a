package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Read lists each kind once, in pages; different kinds are read at slightly different times. A kind that cannot be read
// completely is nil in the state, and listed in Missing. The error wraps ErrUnreachable if /version gets no answer or
// an invalid one, or if no kind could be read because the server does not answer or rejects the credentials. If ctx is
// canceled, Read returns ctx.Err().
func (c *Client) Read(ctx context.Context, kinds ...Kind) (*State, error) {
	version, err := c.version(ctx)
	if err != nil {
		return nil, err
	}
	s := &State{Title: c.config.Host, At: time.Now(), Version: version, Namespace: c.namespace}
	reading, stop := context.WithCancelCause(ctx) // canceled if the server does not answer
	defer stop(nil)
	kinds = slices.Compact(slices.Sorted(slices.Values(kinds)))
	failed := make([]error, len(kinds))
	for _, namespaced := range []bool{false, true} { // objects of the whole cluster tell the operator's namespace
		var all sync.WaitGroup
		for i, k := range kinds {
			if lists[k].namespaced == namespaced {
				all.Go(func() {
					if failed[i] = c.list(reading, s, k); errors.Is(failed[i], ErrUnreachable) {
						stop(failed[i])
					}
				})
			}
		}
		all.Wait()
		s.findNamespace()
	}
	for i, err := range failed {
		if err != nil {
			s.Missing = append(s.Missing, missing(kinds[i], err))
		}
	}
	switch gone := context.Cause(reading); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case gone != nil && len(s.Missing) == len(kinds):
		return nil, gone
	}
	s.keepPods()
	s.Namespace = cmp.Or(s.Namespace, defaultNamespace)
	return s, nil
}

// missing describes why the list of kind k could not be read.
func missing(k Kind, err error) Missing {
	switch {
	case apierrors.IsForbidden(err):
		return Missing{k, Forbidden, firstLine(err)}
	case apierrors.IsNotFound(err):
		return Missing{k, Absent, "the cluster does not serve " + string(k) +
			": its CustomResourceDefinition is not installed"}
	}
	return Missing{k, Failed, firstLine(err)}
}

// list reads all objects of a kind into the state. After an error, the kind's list is nil.
func (c *Client) list(ctx context.Context, s *State, k Kind) error {
	objects := s.list(k)
	objects.Grow(1) // makes the list empty
	err := c.pages(ctx, s, k, lists[k].options)
	if k == CRDs { // the list has no schemas, because a CRD can be 1 MiB
		for _, crd := range s.CRDs {
			if err == nil && crd.ofOperator() {
				err = c.pages(ctx, s, k, metav1.ListOptions{FieldSelector: "metadata.name=" + crd.Name})
			}
		}
	}
	if err != nil {
		objects.SetZero()
	}
	return err
}

// pages adds the objects of a kind that the options select to the state.
func (c *Client) pages(ctx context.Context, s *State, k Kind, options metav1.ListOptions) error {
	l, resource := lists[k], schema.ParseGroupResource(string(k))
	root := "/api"
	if resource.Group != "" {
		root = "/apis/" + resource.Group
	}
	builtIn := builtIns.IsGroupRegistered(resource.Group)
	options.Limit = cmp.Or(options.Limit, pageSize)
	for {
		request := c.typed.Get().AbsPath(root, cmp.Or(l.version, "v1")).Resource(resource.Resource).MaxRetries(1).
			NamespaceIfScoped(cmp.Or(s.Namespace, defaultNamespace), l.namespaced).
			SpecificallyVersionedParams(&options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
		switch {
		case k == CRDs && options.FieldSelector == "":
			request.SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
		case !builtIn:
			request.SetHeader("Accept", runtime.ContentTypeJSON)
		}
		result, err := c.do(ctx, pageTimeout, request)
		if err != nil {
			return err
		}
		var page runtime.Object = &unstructured.UnstructuredList{}
		if builtIn {
			page, err = result.Get()
		} else {
			err = result.Into(page)
		}
		if err != nil {
			return err
		}
		about, err := meta.ListAccessor(page)
		if err != nil {
			return err
		}
		if err := meta.EachListItem(page, func(o runtime.Object) error { return s.add(k, o) }); err != nil {
			return err
		}
		if options.Continue = about.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}
