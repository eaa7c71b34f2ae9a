// Package kube is the exporter's client of the Kubernetes API.
//
// It reads the pods and ResourceSlices of one node, claims, one ConfigMap and one node's labels, and nothing else. It
// keeps only the parts of objects that the exporter uses. Answers come from memory, so readers never wait for the
// network. If the API server rejects a request, the error names the missing verb and resource.
//
// A Client and its watches end with the context that they were started with.
package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ErrNoCluster means that there is no cluster: the process has no pod service account token, and KUBECONFIG is not set.
var ErrNoCluster = errors.New("no Kubernetes API: the pod has no service account token, and KUBECONFIG is not set")

const (
	// requestTimeout bounds a request that is not a watch.
	requestTimeout = 10 * time.Second
	// recheckConfigMap is how often a ConfigMap is read. Reading needs only the verb get on that one object, while a
	// watch needs two verbs on all of them.
	recheckConfigMap = time.Minute
	// recheckNode is how often a node's labels are read.
	recheckNode = 10 * time.Minute
)

// Client is a client of one API server.
type Client struct {
	dynamic    dynamic.Interface
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

// New returns a Client without sending a request. The error is ErrNoCluster, or describes the error in the kubeconfig.
func New(opt Options) (*Client, error) {
	c := &Client{report: opt.Report, maxBackoff: cmp.Or(opt.MaxBackoff, 30*time.Second)}
	if c.report == nil {
		c.report = func(string, error) {}
	}
	config, err := rest.InClusterConfig()
	if len(opt.Kubeconfig) > 0 {
		rules := &clientcmd.ClientConfigLoadingRules{Precedence: opt.Kubeconfig}
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	} else if errors.Is(err, rest.ErrNotInCluster) {
		return nil, ErrNoCluster
	}
	if err == nil {
		config.UserAgent = "dcgm-exporter"
		c.dynamic, err = dynamic.NewForConfig(config)
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return c, nil
}

// backoff returns the pauses after failed requests, starting at one second and doubling up to the maximum.
func (c *Client) backoff() *wait.Backoff {
	first := min(time.Second, c.maxBackoff)
	return &wait.Backoff{Duration: first, Cap: c.maxBackoff, Steps: 6, Factor: 2, Jitter: 0.5}
}

// explain adds the cause to err. The namespace is empty for cluster-wide requests.
func explain(err error, verb string, r schema.GroupVersionResource, namespace string) error {
	if apierrors.IsUnauthorized(err) {
		return fmt.Errorf("the API server does not accept the token or certificate: %w", err)
	}
	if !apierrors.IsForbidden(err) {
		return err
	}
	role := "ClusterRole"
	if namespace != "" {
		role = "Role in the namespace " + namespace
	}
	return fmt.Errorf("no permission: grant the service account the verb %q on %q with a %s: %w",
		verb, r.GroupResource(), role, err)
}

// get returns one object. The API server may answer from its cache.
func (c *Client) get(
	ctx context.Context, r schema.GroupVersionResource, namespace, name string,
) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	object, err := c.dynamic.Resource(r).Namespace(namespace).Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	return object, explain(err, "get", r, namespace)
}

// read copies fields of an object into a struct. Missing fields stay zero.
func read(u *unstructured.Unstructured, into any) {
	// Ignore errors: objects of the API server fit their schema.
	text, _ := u.MarshalJSON()
	_ = json.Unmarshal(text, into)
}

// MPS returns a function that reports whether replicas of a device run under the MPS daemon, according to the node
// labels of GPU feature discovery and GKE. It is false until the labels are known. They are read from time to time
// until ctx is done, which needs the permission get on the node.
func (c *Client) MPS(ctx context.Context, node string) func() bool {
	var mps atomic.Bool
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		object, err := c.get(ctx, schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "", node)
		if ctx.Err() != nil {
			return
		}
		c.report("nodes", err)
		if err == nil {
			labels := object.GetLabels()
			mps.Store(labels["nvidia.com/gpu.sharing-strategy"] == "mps" ||
				labels["cloud.google.com/gke-gpu-sharing-strategy"] == "mps")
		}
	}, recheckNode)
	return mps.Load
}

// ConfigMap is one key of one ConfigMap.
type ConfigMap struct {
	client               *Client
	Namespace, Name, Key string
}

// ConfigMap returns a key of a ConfigMap without reading it.
func (c *Client) ConfigMap(namespace, name, key string) *ConfigMap {
	return &ConfigMap{client: c, Namespace: namespace, Name: name, Key: key}
}

// read returns the content of the key. The error says whether the permission, the ConfigMap or the key is missing.
// retry reports whether the error may be temporary.
func (m *ConfigMap) read(ctx context.Context) (data string, retry bool, err error) {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	object, err := m.client.get(ctx, resource, m.Namespace, m.Name)
	if apierrors.IsNotFound(err) {
		return "", false, fmt.Errorf("ConfigMap %s/%s not found", m.Namespace, m.Name)
	}
	if err != nil {
		retry = !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err)
		return "", retry, fmt.Errorf("ConfigMap %s:%s: %w", m.Namespace, m.Name, err)
	}
	data, ok, err := unstructured.NestedString(object.Object, "data", m.Key)
	if !ok {
		err = fmt.Errorf("ConfigMap %s:%s has no text under the key %q", m.Namespace, m.Name, m.Key)
	}
	return data, false, err
}

// Await reads the key and retries while the API server is unreachable or not ready, because a booting node may start
// the exporter before its network. If the request is rejected, or the ConfigMap or key does not exist, it fails at
// once. If there is no answer in time, the error wraps gpu.ErrUnavailable.
func (m *ConfigMap) Await(ctx context.Context, patience time.Duration) ([]byte, error) {
	var data string
	var err error
	late := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		var retry bool
		data, retry, err = m.read(ctx)
		return !retry, nil
	})
	if late != nil {
		return nil, fmt.Errorf("%w: %w", gpu.ErrUnavailable, err)
	}
	return []byte(data), err
}

// Follow calls changed whenever the content changes, until ctx is done. It ignores failed reads.
func (m *ConfigMap) Follow(ctx context.Context, changed func()) {
	var last *string
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		data, _, err := m.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if m.client.report("configmaps", err); err != nil {
			return
		}
		if last != nil && data != *last {
			changed()
		}
		last = &data
	}, recheckConfigMap)
}

// LogTo redirects client-go's log from standard error to log. Call it once, before the first New.
func LogTo(log *slog.Logger) { klog.SetSlogLogger(log) }
