package pagefuzz

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// mood is how the kubelet answers requests.
type mood int

const (
	well       mood = iota
	restarting      // lists no pods, then some, then all, while it starts
	refusing        // new connections fail, and open ones get a gRPC error
	failing         // returns a gRPC error
	hanging         // blocks until the caller gives up
	slow            // answers after half a second
	moods
)

// filling is the time that a kubelet needs after its start to list all pods. Kubelet v1.36.3 lists no pods for a
// second, and then one after the other.
const filling = 3 * time.Second

const (
	driver   = "gpu.nvidia.com"
	poolName = "node-17"
)

// A node is the kubelet of a world, and the gRPC server that it runs in.
type node struct {
	v1.UnimplementedPodResourcesListerServer
	t      *testing.T
	w      *world
	socket string // file whose modification time says when the kubelet started; nothing connects to it

	boot   int
	server *grpc.Server

	mu       sync.Mutex // guards the fields below
	rng      *rand.Rand // separate from the world's generator, because requests arrive while the world is read
	started  time.Time
	listener *bufconn.Listener
}

// newNode starts a kubelet. Half of the kubelets appear to have been running for an hour.
func newNode(t *testing.T, w *world, seed uint64) *node {
	n := &node{t: t, w: w, rng: rand.New(rand.NewPCG(seed, 2)), socket: filepath.Join(t.TempDir(), "kubelet.sock")}
	if err := os.WriteFile(n.socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.start(time.Now().Add(-time.Hour * time.Duration(n.rng.IntN(2))))
	return n
}

func (n *node) start(at time.Time) {
	n.listener, n.server, n.started = bufconn.Listen(1<<16), grpc.NewServer(), at
	if err := os.Chtimes(n.socket, at, at); err != nil {
		n.t.Error(err)
	}
	v1.RegisterPodResourcesListerServer(n.server, n)
	server, listener := n.server, n.listener
	go func() { _ = server.Serve(listener) }() // returns when the server stops
}

// follow restarts the gRPC server if the world has restarted the kubelet. Clients notice at their next call.
func (n *node) follow() {
	n.w.mu.Lock()
	boot := n.w.kubelet.boot
	n.w.mu.Unlock()
	if boot == n.boot {
		return
	}
	n.boot = boot
	n.server.Stop() // must precede the lock, because requests in progress need it
	n.mu.Lock()
	defer n.mu.Unlock()
	n.start(time.Now())
}

func (n *node) stop() { n.server.Stop() }

// dial connects to the kubelet. It fails if the kubelet refuses connections.
func (n *node) dial(ctx context.Context) (net.Conn, error) {
	n.w.mu.Lock()
	refused := n.w.kubelet.mood == refusing && n.turn() == refusing
	n.w.mu.Unlock()
	if refused {
		return nil, &net.OpError{Op: "dial", Net: "unix", Err: syscall.ENOENT}
	}
	n.mu.Lock()
	listener := n.listener
	n.mu.Unlock()
	return listener.DialContext(ctx)
}

// turn returns how the next request is answered, and counts the request. A mood ends after the number of requests in
// kubelet.turns. Until then, the kubelet's list is not trusted to be complete.
func (n *node) turn() mood {
	k := &n.w.kubelet
	if k.mood != well {
		n.w.trusted = time.Time{}
		if k.turns--; k.turns < 0 {
			k.mood = well
		}
	}
	return k.mood
}

// known returns how many of the pods a kubelet lists at the given time after its start.
func known(pods int, since time.Duration) int {
	const empty = time.Second
	if since >= filling {
		return pods
	}
	return pods * int(max(since-empty, 0)) / int(filling-empty)
}

func (n *node) List(ctx context.Context, _ *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	mood, pods, code := n.answer()
	switch mood {
	case failing, refusing:
		return nil, status.Error(code, "scripted error")
	case hanging:
		<-ctx.Done()
		return nil, ctx.Err()
	case slow:
		timer := time.NewTimer(500 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return &v1.ListPodResourcesResponse{PodResources: pods}, nil
}

// answer decides how a list request is answered. It returns the mood, the pods, and the code for an error. The caller
// waits or hangs, so that no lock is held meanwhile.
func (n *node) answer() (mood, []*v1.PodResources, codes.Code) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	mood, pods, since := n.turn(), n.list(), time.Since(n.started)
	if mood == restarting {
		mood = well
	}
	if mood == well && since >= filling && n.w.trusted.IsZero() {
		n.w.trusted = time.Now()
	}
	n.rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	all := []codes.Code{codes.Internal, codes.ResourceExhausted, codes.Unavailable, codes.Unknown}
	return mood, pods[:known(len(pods), since)], all[n.rng.IntN(len(all))]
}

// list returns the pods with their devices, and entries that the exporter must ignore. The caller holds the locks.
func (n *node) list() []*v1.PodResources {
	var all []*v1.PodResources
	for _, p := range n.w.pods {
		listed := kubelet.Pod(p.String())
		for _, name := range p.containers {
			c := &v1.ContainerResources{Name: name}
			for _, d := range n.w.devices() {
				for _, h := range d.held {
					if h.pod == p {
						hold(c, p, d, h)
					}
				}
			}
			listed.Containers = append(listed.Containers, c)
		}
		all = append(all, listed)
	}
	// add what the exporter must ignore: a GPU of another node, other devices, and invalid IDs
	return append(all,
		kubelet.Pod("kube-system/no-devices", &v1.ContainerResources{Name: "main"}),
		kubelet.Pod("other/elsewhere",
			kubelet.Container("main", "nvidia.com/gpu", "GPU-ffffffff-ffff-4fff-8fff-ffffffffffff")),
		kubelet.Pod("other/network", kubelet.Container("main", "example.com/nic", "eth1", "", "::", "nvidia-1")))
}

// hold adds a device to a container.
func hold(c *v1.ContainerResources, p *pod, d *device, h holding) {
	if d.gpu.mode == claimed {
		c.DynamicResources = append(c.DynamicResources,
			kubelet.Claiming("", p.namespace, "claim-"+d.gpu.uuid, driver, poolName, deviceName(d),
				"").DynamicResources...)
		return
	}
	id, resource := d.id(), "nvidia.com/gpu"
	if d.instance > 0 {
		resource = "nvidia.com/mig-" + d.profile
	}
	if h.replica != "" {
		id += "::" + h.replica
	}
	c.Devices = append(c.Devices, kubelet.Device(resource, id))
}

func deviceName(d *device) string { return "gpu-" + d.gpu.uuid[4:12] }

func (n *node) GetAllocatableResources(context.Context,
	*v1.AllocatableResourcesRequest) (*v1.AllocatableResourcesResponse, error) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	r := &v1.AllocatableResourcesResponse{}
	for _, d := range n.w.devices() {
		for i := range d.replicas {
			c := &v1.ContainerResources{}
			hold(c, nil, d, holding{replica: string(rune('0' + i))})
			r.Devices = append(r.Devices, c.Devices...)
		}
	}
	return r, nil
}

// options returns the options of a mapper for this kubelet and its API server.
func (n *node) options() podmapper.Options {
	w := n.w
	return podmapper.Options{
		Socket: n.socket, PodUID: true, Dial: n.dial, Metrics: podmapper.NewMetrics(prometheus.NewRegistry()),
		Pod: func(namespace, name string) (podmapper.PodInfo, bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, p := range w.pods {
				if p.namespace == namespace && p.name == name && p.known {
					return podmapper.PodInfo{UID: p.uid}, true
				}
			}
			return podmapper.PodInfo{}, false
		},
		Device: func(of, pool, name string) (podmapper.ClaimDevice, bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, d := range w.devices() {
				if d.gpu.mode == claimed && of == driver && pool == poolName && name == deviceName(d) {
					return podmapper.ClaimDevice{UUID: d.gpu.uuid}, true
				}
			}
			return podmapper.ClaimDevice{}, false
		},
		Revision: func() uint64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.revision
		},
	}
}
