package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// pageSize is what a page holds, as kubectl's --chunk-size does.
	pageSize = 500
	// largePage is for kinds whose objects are large: a release's Secret is up to 1 MiB.
	largePage = 25
	// restarts is how often a list whose continuation expired (410 Gone) begins again.
	restarts = 2
	// attempts is how often a page is requested of a server that does not answer, and between pause.
	attempts = 3
	between  = time.Second
	// parallel bounds the kinds that are listed at once.
	parallel = 4
	// defaultNamespace is where NVIDIA's documentation installs the operator.
	defaultNamespace = "gpu-operator"
)

// A list is how one kind is listed.
type list struct {
	path       string // of the whole cluster, or with %s for the operator's namespace; %v is the version
	versions   []string
	limit      int
	parameters map[string]string
	// accept is what the server is requested to answer with; empty for the client's own.
	accept string
	// page returns where a page is decoded to, and what takes it into the state.
	page func(*State, *trimmer) (runtime.Object, func())
	slot
}

// A slot is the state's list of one kind.
type slot struct {
	known func(*State) bool // the list is not nil
	reset func(*State)      // makes it empty and not nil
	drop  func(*State)      // makes it nil
}

func slotOf[T any](field func(*State) *[]T) slot {
	return slot{
		known: func(s *State) bool { return *field(s) != nil },
		reset: func(s *State) { *field(s) = []T{} },
		drop:  func(s *State) { *field(s) = nil },
	}
}

func builtIn[T, L any](path string, field func(*State) *[]T, items func(*L) []T, trim func(*trimmer, *T) bool) list {
	l := list{path: path, limit: pageSize, slot: slotOf(field)}
	l.page = func(s *State, t *trimmer) (runtime.Object, func()) {
		into := new(L)
		return any(into).(runtime.Object), func() {
			all := items(into)
			for i := range all {
				if trim(t, &all[i]) {
					*field(s) = append(*field(s), all[i])
				}
			}
		}
	}
	return l
}

func custom(group, plural string, field func(*State) *[]unstructured.Unstructured, trim func(*trimmer, *unstructured.Unstructured), versions ...string) list {
	return list{path: "/apis/" + group + "/%v/" + plural, versions: versions, limit: pageSize, accept: runtime.ContentTypeJSON, slot: slotOf(field),
		page: func(s *State, t *trimmer) (runtime.Object, func()) {
			into := &unstructured.UnstructuredList{}
			return into, func() {
				for i := range into.Items {
					trim(t, &into.Items[i])
				}
				*field(s) = append(*field(s), into.Items...)
			}
		}}
}

func (l list) of(limit int, parameters map[string]string) list {
	l.limit, l.parameters = limit, parameters
	return l
}

var lists = map[Kind]list{
	Nodes: builtIn("/api/v1/nodes", func(s *State) *[]corev1.Node { return &s.Nodes },
		func(l *corev1.NodeList) []corev1.Node { return l.Items }, (*trimmer).node),
	Pods: builtIn("/api/v1/pods", func(s *State) *[]corev1.Pod { return &s.Pods },
		func(l *corev1.PodList) []corev1.Pod { return l.Items }, (*trimmer).pod),
	DaemonSets: builtIn("/apis/apps/v1/daemonsets", func(s *State) *[]appsv1.DaemonSet { return &s.DaemonSets },
		func(l *appsv1.DaemonSetList) []appsv1.DaemonSet { return l.Items }, (*trimmer).daemonSet),
	ConfigMaps: builtIn("/api/v1/namespaces/%s/configmaps", func(s *State) *[]corev1.ConfigMap { return &s.ConfigMaps },
		func(l *corev1.ConfigMapList) []corev1.ConfigMap { return l.Items }, (*trimmer).configMap),
	Namespaces: builtIn("/api/v1/namespaces", func(s *State) *[]corev1.Namespace { return &s.Namespaces },
		func(l *corev1.NamespaceList) []corev1.Namespace { return l.Items },
		func(t *trimmer, o *corev1.Namespace) bool { t.meta(&o.ObjectMeta); return true }),
	Quotas: builtIn("/api/v1/namespaces/%s/resourcequotas", func(s *State) *[]corev1.ResourceQuota { return &s.Quotas },
		func(l *corev1.ResourceQuotaList) []corev1.ResourceQuota { return l.Items },
		func(t *trimmer, o *corev1.ResourceQuota) bool { t.meta(&o.ObjectMeta); return true }),
	Secrets: builtIn("/api/v1/namespaces/%s/secrets", func(s *State) *[]corev1.Secret { return &s.Secrets },
		func(l *corev1.SecretList) []corev1.Secret { return l.Items },
		func(t *trimmer, o *corev1.Secret) bool { t.meta(&o.ObjectMeta); return true }).
		of(largePage, map[string]string{"labelSelector": "owner=helm"}),
	RuntimeClasses: builtIn("/apis/node.k8s.io/v1/runtimeclasses", func(s *State) *[]nodev1.RuntimeClass { return &s.RuntimeClasses },
		func(l *nodev1.RuntimeClassList) []nodev1.RuntimeClass { return l.Items },
		func(t *trimmer, o *nodev1.RuntimeClass) bool { t.meta(&o.ObjectMeta); return true }),
	Events: builtIn("/api/v1/namespaces/%s/events", func(s *State) *[]corev1.Event { return &s.Events },
		func(l *corev1.EventList) []corev1.Event { return l.Items }, (*trimmer).event).
		of(pageSize, map[string]string{"fieldSelector": "type=Warning"}),
	CRDs: {
		path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", limit: pageSize,
		// the names alone: a definition is up to a MiB
		accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		slot:   slotOf(func(s *State) *[]string { return &s.CRDs }),
		page: func(s *State, _ *trimmer) (runtime.Object, func()) {
			into := &unstructured.UnstructuredList{}
			return into, func() {
				for _, item := range into.Items {
					s.CRDs = append(s.CRDs, item.GetName())
				}
			}
		},
	},
	ClusterPolicies: custom("nvidia.com", "clusterpolicies", func(s *State) *[]unstructured.Unstructured { return &s.ClusterPolicies }, (*trimmer).custom, "v1"),
	NVIDIADrivers:   custom("nvidia.com", "nvidiadrivers", func(s *State) *[]unstructured.Unstructured { return &s.NVIDIADrivers }, (*trimmer).custom, "v1alpha1"),
	GPUClusters:     custom("nvidia.com", "gpuclusters", func(s *State) *[]unstructured.Unstructured { return &s.GPUClusters }, (*trimmer).custom, "v1alpha1"),
	HelmReleases: custom("helm.toolkit.fluxcd.io", "helmreleases", func(s *State) *[]unstructured.Unstructured { return &s.HelmReleases }, (*trimmer).custom,
		"v2", "v2beta2", "v2beta1"),
	Applications: custom("argoproj.io", "applications", func(s *State) *[]unstructured.Unstructured { return &s.Applications }, (*trimmer).custom, "v1alpha1"),
	NodeFeatures: custom("nfd.k8s-sigs.io", "nodefeatures", func(s *State) *[]unstructured.Unstructured { return &s.NodeFeatures }, (*trimmer).nodeFeature, "v1alpha1").
		of(largePage, nil),
}

func (s *State) holds(k Kind) bool {
	l, known := lists[k]
	return known && l.known(s)
}

// namespaced reports whether a kind is read of the operator's namespace alone.
func (l list) namespaced() bool { return strings.Contains(l.path, "/%s/") }

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
	if s.Namespace == "" {
		s.Namespace = defaultNamespace
	}
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
	l := lists[k]
	namespace := r.state.Namespace
	if namespace == "" {
		namespace = defaultNamespace
	}
	err := r.client.list(ctx, l, namespace, r.state, r.trim, r.isGone)
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

// missing says why a list is.
func missing(k Kind, err error) Missing {
	m := Missing{Kind: k, Verb: "list", Why: Failed, Detail: firstLine(err)}
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

// list lists all pages of one kind into s. After an error the list is nil. Gone, if it returns an error,
// ends it before the next page.
func (c *Client) list(ctx context.Context, l list, namespace string, s *State, t *trimmer, gone func() error) (err error) {
	defer func() {
		if err != nil {
			l.drop(s)
		}
	}()
	served := 0 // of versions
	for again := 0; ; again++ {
		l.reset(s)
		token := ""
		for {
			if err := gone(); err != nil {
				return err
			}
			object, take := l.page(s, t)
			if err = c.page(ctx, l, served, namespace, token, object); err != nil {
				break
			}
			take()
			about, isList := object.(metav1.ListInterface)
			if !isList {
				return fmt.Errorf("%T is no list", object)
			}
			if token = about.GetContinue(); token == "" {
				return nil
			}
		}
		switch {
		case apierrors.IsNotFound(err) && served+1 < len(l.versions):
			served++
		case (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) && again < restarts:
		default:
			return err
		}
	}
}

// page requests one page. A server that is away, as one that restarts, is requested again after a
// pause.
func (c *Client) page(ctx context.Context, l list, served int, namespace, token string, into runtime.Object) error {
	for attempt := 1; ; attempt++ {
		err := c.request(ctx, l, served, namespace, token, into)
		switch {
		case err == nil || ctx.Err() != nil || answered(err) && !passing(err):
			return err
		case errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("%s did not answer within %s", c.Server(), pageTimeout)
		case attempt == attempts && answered(err):
			return err
		case attempt == attempts:
			return errors.New(reason(c, err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(between):
		}
	}
}

// reason is what unreachable says, without its first words.
func reason(c *Client, err error) string {
	return strings.TrimPrefix(c.unreachable(err).Error(), ErrUnreachable.Error()+": ")
}

// passing reports whether a server said that it will answer later.
func passing(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

func (c *Client) request(ctx context.Context, l list, served int, namespace, token string, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	path := l.path
	if l.namespaced() {
		path = fmt.Sprintf(path, namespace)
	} else if len(l.versions) > 0 {
		path = fmt.Sprintf(path, l.versions[served])
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
	return request.Do(ctx).Into(into)
}
