package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// recheck is how often a ConfigMap is read. Reading needs only the verb get on that one object, while a watch needs two
// verbs on all of them. The answer comes from the API server's cache.
const recheck = time.Minute

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
func (m *ConfigMap) read(ctx context.Context) (data []byte, retry bool, err error) {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	object, err := m.client.get(ctx, resource, m.Namespace, m.Name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, fmt.Errorf("ConfigMap %s/%s not found", m.Namespace, m.Name)
	case err != nil:
		retry = !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err)
		return nil, retry, fmt.Errorf("ConfigMap %s:%s: %w", m.Namespace, m.Name, err)
	}
	var content struct {
		Data map[string]string `json:"data"`
	}
	read(object, &content)
	text, ok := content.Data[m.Key]
	if !ok {
		return nil, false, fmt.Errorf("ConfigMap %s:%s has no text under the key %q", m.Namespace, m.Name, m.Key)
	}
	return []byte(text), false, nil
}

// Await reads the key and retries while the API server is unreachable or not ready, because a booting node may start
// the exporter before its network. If the request is rejected, or the ConfigMap or key does not exist, it fails at
// once. If there is no answer in time, the error wraps gpu.ErrUnavailable.
func (m *ConfigMap) Await(ctx context.Context, patience time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		data, retry, err := m.read(ctx)
		if !retry {
			return data, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", gpu.ErrUnavailable, err)
		case <-time.After(time.Second):
		}
	}
}

// Follow calls changed whenever the content changes, until ctx is done. It ignores failed reads.
func (m *ConfigMap) Follow(ctx context.Context, changed func()) {
	var last []byte
	every(ctx, recheck, func() {
		data, _, err := m.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if m.client.report("configmaps", err); err != nil {
			return
		}
		if last != nil && string(data) != string(last) {
			changed()
		}
		last = data
	})
}
