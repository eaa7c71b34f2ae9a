package cluster

import (
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
	// pageTimeout limits a single page, and the request of Label. It is long enough for 500 large pods over a slow
	// connection.
	pageTimeout = 30 * time.Second
	// pluginTimeout is added to the timeout if the kubeconfig has a credential plugin, which may ask the user to log
	// in.
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
	// ManagedFields keeps managedFields and kubectl's last-applied annotation, except of nodes, pods, events and CRDs.
	ManagedFields bool
}

// Client reads from an API server, and can set node labels. It is safe for concurrent use.
type Client struct {
	opt    Options
	config *rest.Config
	typed  *rest.RESTClient // reads built-in kinds as protobuf, and other kinds as JSON
}

var silence = sync.OnceFunc(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) })

// builtIns returns a scheme with the built-in kinds, which the client reads as protobuf.
func builtIns() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s, errors.Join(corev1.AddToScheme(s), appsv1.AddToScheme(s))
}

// Open returns a client without contacting the server. Errors wrap ErrInput. Open disables client-go's logging for the
// whole process, because all failures are returned as errors.
func Open(opt Options) (*Client, error) {
	silence()
	if opt.Timeout <= 0 {
		opt.Timeout = DefaultTimeout
	}
	config, err := load(opt)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "gpuop"
	config.QPS = -1 // no client-side limit: the API server's Priority and Fairness limits the rate
	config.WarningHandler = rest.NoWarnings{}
	config.Dial = (&net.Dialer{Timeout: opt.Timeout, KeepAlive: 30 * time.Second}).DialContext
	client := &Client{opt: opt, config: config}
	scheme, err := builtIns()
	if err != nil {
		return nil, err
	}
	typed := rest.CopyConfig(config)
	typed.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	typed.ContentType = runtime.ContentTypeJSON
	if client.typed, err = rest.UnversionedRESTClientFor(typed); err != nil {
		return nil, fmt.Errorf("%w: kubeconfig: %w", ErrInput, err)
	}
	return client, nil
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
	where := strings.Join(rules.GetLoadingPrecedence(), ", ")
	known := slices.Sorted(maps.Keys(raw.Contexts))
	switch {
	case opt.Context != "" && len(known) == 0:
		return nil, fmt.Errorf("%w: no kubeconfig with the context %q at %s: set --kubeconfig or KUBECONFIG",
			ErrInput, opt.Context, where)
	case opt.Context != "" && raw.Contexts[opt.Context] == nil:
		hint := ""
		if near := check.Nearest(opt.Context, known); near != "" {
			hint = fmt.Sprintf(", did you mean %q?", near)
		}
		return nil, fmt.Errorf("%w: the kubeconfig has no context %q%s (available: %s)",
			ErrInput, opt.Context, hint, strings.Join(known, ", "))
	}
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		if len(known) > 0 {
			return nil, fmt.Errorf("%w: the kubeconfig (%s) has no current context: "+
				"choose one with --context (available: %s)", ErrInput, where,
				strings.Join(known, ", "))
		}
		return nil, fmt.Errorf("%w: no kubeconfig at %s: set --kubeconfig or KUBECONFIG, or read a folder with --from",
			ErrInput, where)
	case err != nil:
		return nil, fmt.Errorf("%w: kubeconfig: %s", ErrInput, firstLine(err))
	}
	return config, nil
}

// Server returns the server's address.
func (c *Client) Server() string { return c.config.Host }

// version requests the server's version, such as "v1.36.3". It is empty if the server forbids the request or does not
// serve /version. Errors wrap ErrUnreachable, except a cancellation.
func (c *Client) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	// client-go runs credential plugins without a context, so they ignore the deadline
	type answer struct {
		body []byte
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		body, err := c.typed.Get().AbsPath("/version").MaxRetries(0).Do(ctx).Raw()
		done <- answer{body, err}
	}()
	var body []byte
	var err error
	select {
	case a := <-done:
		body, err = a.body, a.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", c.unreachable(err)
	}
	var info version.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("%w: %s is not a Kubernetes API server: invalid response to /version: %w",
			ErrUnreachable, c.Server(), err)
	}
	return info.GitVersion, nil
}

// patience returns how long to wait for the server's first answer.
func (c *Client) patience() time.Duration {
	if c.config.ExecProvider != nil {
		return c.opt.Timeout + pluginTimeout
	}
	return c.opt.Timeout
}

// unreachable turns the error of a request into one that wraps ErrUnreachable and explains the cause. It returns a
// cancellation error unchanged.
func (c *Client) unreachable(err error) error {
	var (
		network *net.OpError
		dns     *net.DNSError
		failed  *url.Error
	)
	why := firstLine(err)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: %s rejected the kubeconfig's credentials: they are wrong or have expired, log "+
			"in again", ErrUnreachable, c.Server())
	case errors.Is(err, context.DeadlineExceeded) && c.config.ExecProvider != nil:
		return fmt.Errorf("%w: timed out waiting for %s or for the kubeconfig's credential plugin %s",
			ErrUnreachable, c.Server(), c.config.ExecProvider.Command)
	case errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err):
		return fmt.Errorf("%w: %s did not answer within %s", ErrUnreachable, c.Server(), c.opt.Timeout)
	case errors.As(err, &dns):
		why = fmt.Sprintf("no address for %s", dns.Name)
	case errors.As(err, &network):
		why = network.Err.Error()
	case errors.As(err, &failed):
		why = firstLine(failed.Err)
	}
	return fmt.Errorf("%w: %s: %s", ErrUnreachable, c.Server(), why)
}

// answered reports whether err is an API server's response, and not a failed connection.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code != 0
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
	request := c.typed.Patch(types.MergePatchType).AbsPath("/api/v1/nodes/"+url.PathEscape(node)).Param("fieldManager",
		"gpuop").Body(patch)
	limited, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	err = request.Do(limited).Error()
	switch {
	case err == nil:
		return nil
	case !answered(err) && limited.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("%w: %s did not answer within %s", ErrUnreachable, c.Server(), pageTimeout)
	case !answered(err) || apierrors.IsUnauthorized(err):
		err = c.unreachable(err)
	}
	return fmt.Errorf("label node %s: %w", node, err)
}
