package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// Limits of requests.
const (
	// DefaultTimeout limits the wait for the server's first answer.
	DefaultTimeout = 5 * time.Second
	// pageTimeout limits every later request. It is long enough for 500 large pods over a slow connection.
	pageTimeout = 30 * time.Second
	// pluginTimeout is added if the kubeconfig has a credential plugin, which may ask the user to log in.
	pluginTimeout = 60 * time.Second
)

// Options select the API server, and how it is read.
type Options struct {
	// Kubeconfig is the path of a file that replaces KUBECONFIG and ~/.kube/config. If it is empty, gpuop looks where
	// kubectl does: in KUBECONFIG, in ~/.kube/config, and finally at the pod's service account.
	Kubeconfig string
	// Context is a context of the kubeconfig; empty means the current one.
	Context string
	// Namespace is the operator's namespace; empty means to detect it.
	Namespace string
	// Timeout limits the wait for the server's first answer; 0 means DefaultTimeout. A credential plugin gets
	// additional time.
	Timeout time.Duration
}

// Client reads from an API server, and can set node labels. It is safe for concurrent use.
type Client struct {
	config    *rest.Config
	typed     *rest.RESTClient // reads built-in kinds as protobuf, and other kinds as JSON
	namespace string           // Options.Namespace
	timeout   time.Duration    // of the first request
}

var silence = sync.OnceFunc(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) })

// builtIns has the types of the built-in kinds. Objects of other kinds are unstructured.
var builtIns = func() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(errors.Join(corev1.AddToScheme(s), appsv1.AddToScheme(s)))
	return s
}()

// Open returns a client without contacting the server. Errors wrap ErrInput. Open disables client-go's logging for the
// whole process, because all failures are returned as errors.
func Open(opt Options) (*Client, error) {
	silence()
	config, err := load(opt)
	if err != nil {
		return nil, err
	}
	timeout := cmp.Or(opt.Timeout, DefaultTimeout)
	config.Dial = (&net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second}).DialContext
	if config.ExecProvider != nil {
		timeout += pluginTimeout
	}
	config.UserAgent = "gpuop"
	config.QPS = -1 // no client-side limit: the API server's Priority and Fairness limits the rate
	config.WarningHandler = rest.NoWarnings{}
	config.NegotiatedSerializer = serializer.NewCodecFactory(builtIns).WithoutConversion()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeJSON
	typed, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%w: kubeconfig: %w", ErrInput, err)
	}
	return &Client{config: config, typed: typed, namespace: opt.Namespace, timeout: timeout}, nil
}

// load returns the configuration for connecting to the API server. It tries kubectl's sources in kubectl's order:
// --kubeconfig, the merged files of KUBECONFIG, ~/.kube/config, the pod's service account.
func load(opt Options) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = opt.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: opt.Context})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: kubeconfig: %s", ErrInput, firstLine(err))
	}
	config, err := loader.ClientConfig()
	if err == nil {
		return config, nil
	}
	known := slices.Sorted(maps.Keys(raw.Contexts))
	name := cmp.Or(opt.Context, raw.CurrentContext)
	switch {
	case len(known) == 0:
		return nil, fmt.Errorf("%w: no kubeconfig at %s: set --kubeconfig or KUBECONFIG, or read a folder with --from",
			ErrInput, strings.Join(rules.GetLoadingPrecedence(), ", "))
	case raw.Contexts[name] == nil:
		hint := ""
		if near := check.Nearest(name, known); near != "" {
			hint = fmt.Sprintf(", did you mean %q?", near)
		}
		return nil, fmt.Errorf("%w: the kubeconfig has no context %q%s: choose one with --context (available: %s)",
			ErrInput, name, hint, strings.Join(known, ", "))
	}
	return nil, fmt.Errorf("%w: kubeconfig: %s", ErrInput, firstLine(err))
}

// version requests the server's version, such as "v1.36.3". It is empty if the server forbids the request or does not
// serve /version. Errors wrap ErrUnreachable, except a cancellation.
func (c *Client) version(ctx context.Context) (string, error) {
	result, err := c.do(ctx, c.timeout, c.typed.Get().AbsPath("/version").MaxRetries(0))
	var info version.Info
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return "", nil
	case errors.Is(err, ErrUnreachable) || ctx.Err() != nil:
		return "", err
	case err == nil:
		body, _ := result.Raw()
		err = json.Unmarshal(body, &info)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s is not a Kubernetes API server: invalid response to /version: %w",
			ErrUnreachable, c.config.Host, err)
	}
	return info.GitVersion, nil
}

// do sends a request. If the server does not answer within the timeout or rejects the credentials, the error wraps
// ErrUnreachable.
func (c *Client) do(ctx context.Context, timeout time.Duration, request *rest.Request) (rest.Result, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// client-go runs credential plugins without a context, so they ignore the deadline
	done := make(chan rest.Result, 1)
	go func() { done <- request.Do(limited) }()
	var result rest.Result
	var err error
	select {
	case result = <-done:
		err = result.Error()
	case <-limited.Done():
		err = limited.Err()
	}
	var status apierrors.APIStatus
	var failed *url.Error
	host := c.config.Host
	switch {
	case err == nil:
		return result, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return result, context.Cause(ctx)
	case apierrors.IsUnauthorized(err):
		err = fmt.Errorf("%s rejected the kubeconfig's credentials: they are wrong or have expired, log in again", host)
	case errors.As(err, &status) && status.Status().Code != 0:
		return result, err
	case limited.Err() != nil && c.config.ExecProvider != nil:
		err = fmt.Errorf("timed out waiting for %s or for the kubeconfig's credential plugin %s",
			host, c.config.ExecProvider.Command)
	case limited.Err() != nil || os.IsTimeout(err):
		err = fmt.Errorf("%s did not answer within %s", host, timeout)
	case errors.As(err, &failed):
		err = fmt.Errorf("%s: %s", host, firstLine(failed.Err))
	default:
		err = fmt.Errorf("%s: %s", host, firstLine(err))
	}
	return result, fmt.Errorf("%w: %w", ErrUnreachable, err)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(strings.TrimSpace(line), ":")
}

// Label sets a label of a node. If the server refuses, the error contains the server's message.
func (c *Client) Label(ctx context.Context, node, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
	if err != nil {
		return err
	}
	request := c.typed.Patch(types.MergePatchType).AbsPath("/api/v1").Resource("nodes").Name(node).
		Param("fieldManager", "gpuop").Body(patch)
	if _, err = c.do(ctx, pageTimeout, request); err != nil {
		return fmt.Errorf("label node %s: %w", node, err)
	}
	return nil
}
