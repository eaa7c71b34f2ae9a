package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// ErrNoCluster means that there is no cluster: the process has no pod service account token, and KUBECONFIG is not set.
var ErrNoCluster = errors.New("no Kubernetes API: the pod has no service account token, and KUBECONFIG is not set")

// Client is a client of one API server.
type Client struct {
	dynamic dynamic.Interface
	// report receives every outcome of a watched resource.
	report     func(resource string, err error)
	maxBackoff time.Duration
}

// Options configure a Client.
type Options struct {
	// Kubeconfig lists paths of kubeconfig files ($KUBECONFIG). If empty, the service account of the pod is used.
	Kubeconfig []string
	// Report receives the outcome of each request of a watched resource. It may be nil.
	Report func(resource string, err error)
	// MaxBackoff bounds the pause after a failed request, before jitter. Zero means 30 s.
	MaxBackoff time.Duration
}

// requestTimeout bounds a request that is not a watch.
const requestTimeout = 10 * time.Second

// New returns a Client without sending a request. The error is ErrNoCluster, or describes the error in the kubeconfig.
func New(opt Options) (*Client, error) {
	config, err := rest.InClusterConfig()
	if len(opt.Kubeconfig) > 0 {
		rules := &clientcmd.ClientConfigLoadingRules{Precedence: opt.Kubeconfig}
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	} else if errors.Is(err, rest.ErrNotInCluster) {
		return nil, ErrNoCluster
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	config.UserAgent = "dcgm-exporter"
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	if opt.Report == nil {
		opt.Report = func(string, error) {}
	}
	return &Client{dynamic: d, report: opt.Report, maxBackoff: cmp.Or(opt.MaxBackoff, 30*time.Second)}, nil
}

// backoff returns the pauses after failed requests, starting at one second and doubling up to the maximum.
func (c *Client) backoff() *wait.Backoff {
	return &wait.Backoff{
		Duration: min(time.Second, c.maxBackoff), Cap: c.maxBackoff, Steps: 6, Factor: 2, Jitter: 0.5,
	}
}

// explain adds the cause to err. The namespace is empty for cluster-wide requests, and the name is empty for requests
// of all objects.
func explain(err error, verb string, r schema.GroupVersionResource, namespace, name string) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not accept the token or certificate: %w", err)
	case !apierrors.IsForbidden(err):
		return err
	}
	where, role := "in the whole cluster", "ClusterRole"
	if namespace != "" {
		where, role = "in the namespace "+namespace, "Role"
	}
	what := strings.TrimSpace(r.GroupResource().String() + " " + name)
	return fmt.Errorf("no permission to %s %s %s: grant the service account the verb %q on %q with a %s: %w",
		verb, what, where, verb, r.GroupResource(), role, err)
}

// get returns one object. The API server may answer from its cache.
func (c *Client) get(
	ctx context.Context, r schema.GroupVersionResource, namespace, name string,
) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var in dynamic.ResourceInterface = c.dynamic.Resource(r)
	if namespace != "" {
		in = c.dynamic.Resource(r).Namespace(namespace)
	}
	object, err := in.Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	return object, explain(err, "get", r, namespace, name)
}

// read copies fields of an object into a struct. Missing fields stay zero.
func read(u *unstructured.Unstructured, into any) {
	// Ignore the error: objects of the API server fit their schema.
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

// every calls do at once and then at every interval, until ctx is done.
func every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// LogTo redirects client-go's log from standard error to log. Call it once, before the first New.
func LogTo(log *slog.Logger) { klog.SetSlogLogger(log) }
