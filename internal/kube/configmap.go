package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// Read returns the content of the key. The error says what is missing: the permission (*Denied),
// the ConfigMap or the key.
func (m *ConfigMap) Read(ctx context.Context) ([]byte, error) {
	data, _, err := m.read(ctx)
	return data, err
}

// read also says whether an error may pass by itself.
func (m *ConfigMap) read(ctx context.Context) (data []byte, passing bool, err error) {
	object, err := m.client.get(ctx, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, m.Namespace, m.Name)
	if apierrors.IsNotFound(err) {
		return nil, false, fmt.Errorf("there is no ConfigMap %s in the namespace %s", m.Name, m.Namespace)
	}
	if err != nil {
		return nil, passes(err), fmt.Errorf("ConfigMap %s:%s: %w", m.Namespace, m.Name, err)
	}
	text, ok, err := unstructured.NestedString(object.Object, "data", m.Key)
	if err != nil || !ok {
		return nil, false, fmt.Errorf("ConfigMap %s:%s has no key %q with a text", m.Namespace, m.Name, m.Key)
	}
	return []byte(text), false, nil
}

// passes reports whether err is no refusal: there was no answer, or one of a server that is not
// ready.
func passes(err error) bool {
	var denied *Denied
	if errors.As(err, &denied) {
		return false
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonUnknown, metav1.StatusReasonServiceUnavailable, metav1.StatusReasonTooManyRequests,
		metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonInternalError:
		return true
	default:
		return false
	}
}

// Await reads the key, again and again for as long as the API server cannot be reached or is not
// ready: a node that boots starts the exporter before its network. What the server refuses or has
// not is an error at once; no answer in time wraps gpu.ErrUnavailable.
func (m *ConfigMap) Await(ctx context.Context, patience time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		data, passing, err := m.read(ctx)
		if !passing {
			return data, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", gpu.ErrUnavailable, err)
		case <-time.After(time.Second):
		}
	}
}

// Follow calls changed whenever the content differs from what it read before, until ctx is done. A
// ConfigMap that cannot be read is no change.
func (m *ConfigMap) Follow(ctx context.Context, changed func()) {
	var last []byte
	ticker := time.NewTicker(recheck)
	defer ticker.Stop()
	for {
		data, err := m.Read(ctx)
		if ctx.Err() != nil {
			return
		}
		m.client.report("configmaps", err)
		if err == nil {
			if last != nil && !bytes.Equal(data, last) {
				changed()
			}
			last = append([]byte{}, data...)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
