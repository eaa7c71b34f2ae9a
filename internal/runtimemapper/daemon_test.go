package runtimemapper

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// daemon is a fake container runtime that listens on its own socket.
type daemon struct {
	t      *testing.T
	socket string
	server *http.Server

	mu         sync.Mutex
	version    string // of the API; "" if it does not report one
	containers map[string]container
	inspects   int
	// instead, if not nil, handles a request before the daemon. It returns false to let the daemon handle it.
	instead func(w http.ResponseWriter, r *http.Request) bool
}

// container is what the daemon reports about a container.
type container struct {
	name   string
	labels map[string]string
	// inspection contains HostConfig and Config of the inspected container, without braces. It is "" for a container
	// that ended after it was listed.
	inspection string
}

func (c container) with(env string) container {
	const form = `"HostConfig":{"Runtime":"nvidia","DeviceRequests":null},"Config":{"Env":["PATH=/bin",%q]}`
	c.inspection = fmt.Sprintf(form, env)
	return c
}

// sees returns a container whose environment gives it devices.
func sees(name, devices string) container {
	return container{name: name}.with("NVIDIA_VISIBLE_DEVICES=" + devices)
}

func startDaemon(t *testing.T) *daemon {
	socket := filepath.Join(t.TempDir(), "runtime.sock")
	d := &daemon{t: t, socket: socket, version: "1.51", containers: map[string]container{}}
	d.listen()
	t.Cleanup(d.stop)
	return d
}

func (d *daemon) listen() {
	d.t.Helper()
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		d.t.Fatal(err)
	}
	d.server = &http.Server{Handler: d}
	go func(s *http.Server) { _ = s.Serve(l) }(d.server)
}

func (d *daemon) stop() { _ = d.server.Close() }

// set changes the daemon's state under its lock.
func (d *daemon) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	instead := d.instead
	d.mu.Unlock()
	if instead != nil && instead(w, r) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	path := r.URL.Path
	if path == "/_ping" {
		if d.version != "" {
			w.Header().Set("Api-Version", d.version)
		}
		fmt.Fprint(w, "OK")
		return
	}
	if d.version != "" {
		var ok bool
		if path, ok = strings.CutPrefix(path, "/v"+d.version); !ok {
			w.WriteHeader(http.StatusBadRequest) // like Docker for an unsupported version
			return
		}
	}
	if path == "/containers/json" {
		list := []map[string]any{}
		for id, c := range d.containers {
			names := []string{"/other/alias", "/" + c.name}
			list = append(list, map[string]any{"Id": id, "Names": names, "Labels": c.labels, "State": "running"})
		}
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	id := strings.TrimSuffix(strings.TrimPrefix(path, "/containers/"), "/json")
	c := d.containers[id]
	if c.inspection == "" {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"message":"No such container: `+id+`"}`)
		return
	}
	d.inspects++
	fmt.Fprintf(w, `{"Id":%q,"Name":%q,%s}`, id, "/"+c.name, c.inspection)
}

// known returns the number of inspected containers.
func (d *daemon) known() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inspects
}
