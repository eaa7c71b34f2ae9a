package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// recheck is how often a ConfigMap is looked at. Getting it needs no more than get on that one
// object, where a watch would need two verbs on all of them; the answer comes from the API server's
// cache.
const recheck = time.Minute

// A ConfigMap is one key of one ConfigMap.
type ConfigMap struct {
	client               *Client
	Namespace, Name, Key string
}

// ConfigMap returns the key of a ConfigMap. It requests nothing yet.
func (c *Client) ConfigMap(namespace, name, key string) *ConfigMap {
	return &ConfigMap{client: c, Namespace: namespace, Name: name, Key: key}
}

// An unanswered request may be answered later.
type unanswered struct{ error }

func (u unanswered) Unwrap() error { return u.error }

// Read returns the content of the key. The error names the missing thing: the permission, the
// ConfigMap or the key.
func (m *ConfigMap) Read(ctx context.Context) ([]byte, error) {
	object, err := m.client.get(ctx, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, m.Namespace, m.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no ConfigMap %s in the namespace %s", m.Name, m.Namespace)
	case err != nil:
		err = fmt.Errorf("ConfigMap %s:%s: %w", m.Namespace, m.Name, err)
		if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			err = unanswered{err}
		}
		return nil, err
	}
	var content struct {
		Data map[string]string `json:"data"`
	}
	read(object, &content)
	text, ok := content.Data[m.Key]
	if !ok {
		return nil, fmt.Errorf("ConfigMap %s:%s has no key %q with a text", m.Namespace, m.Name, m.Key)
	}
	return []byte(text), nil
}

// Await reads the key, again and again for as long as the API server cannot be reached or is not
// ready: a node that boots starts the exporter before its network. A refusal, and a ConfigMap or key
// that is not there, is an error at once; no answer in time wraps gpu.ErrUnavailable.
func (m *ConfigMap) Await(ctx context.Context, patience time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		data, err := m.Read(ctx)
		if !errors.As(err, &unanswered{}) {
			return data, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", gpu.ErrUnavailable, err)
		case <-time.After(time.Second):
		}
	}
}

// Follow calls changed whenever the content differs from the last, until ctx is done. A
// ConfigMap that cannot be read is no change.
func (m *ConfigMap) Follow(ctx context.Context, changed func()) {
	var last []byte
	every(ctx, recheck, func() {
		data, err := m.Read(ctx)
		if ctx.Err() != nil {
			return
		}
		if m.client.report("configmaps", err); err != nil {
			return
		}
		if last != nil && string(data) != string(last) {
			changed()
		}
		last = append([]byte{}, data...)
	})
}
