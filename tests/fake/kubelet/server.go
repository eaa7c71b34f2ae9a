package kubelet

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// A Reply returns the response to one List call.
type Reply func(ctx context.Context, s *Server) (*v1.ListPodResourcesResponse, error)

// Lists returns a Reply that lists the pods.
func Lists(pods ...*v1.PodResources) Reply {
	return func(context.Context, *Server) (*v1.ListPodResourcesResponse, error) {
		return &v1.ListPodResourcesResponse{PodResources: pods}, nil
	}
}

// Refuses returns a Reply with an error. A real kubelet returns codes.ResourceExhausted above 100 requests per second.
func Refuses(code codes.Code) Reply {
	return func(context.Context, *Server) (*v1.ListPodResourcesResponse, error) {
		return nil, status.Error(code, "refused by the script")
	}
}

// Hangs returns a Reply that blocks until the caller gives up.
func Hangs() Reply {
	return func(ctx context.Context, _ *Server) (*v1.ListPodResourcesResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

// Dies returns a Reply that lists the pods. The connection breaks after the first bytes of the response.
func Dies(pods ...*v1.PodResources) Reply {
	return func(_ context.Context, s *Server) (*v1.ListPodResourcesResponse, error) {
		s.dying.Store(true)
		return &v1.ListPodResourcesResponse{PodResources: pods}, nil
	}
}

// Stalls returns a Reply that lists the pods. The first bytes of the response are sent at once, and the rest when
// release is closed.
func Stalls(release <-chan struct{}, pods ...*v1.PodResources) Reply {
	return func(_ context.Context, s *Server) (*v1.ListPodResourcesResponse, error) {
		s.stall.Store(&release)
		return &v1.ListPodResourcesResponse{PodResources: pods}, nil
	}
}

// A Server is the PodResources endpoint of a kubelet.
type Server struct {
	t      testing.TB
	socket string
	lists  atomic.Int64
	dying  atomic.Bool
	stall  atomic.Pointer[<-chan struct{}] // stalls the next reply

	mu          sync.Mutex
	script      []Reply
	allocatable []*v1.ContainerDevices
	silent      bool
	server      *grpc.Server
}

// Start runs a server with the v1 API until the test ends. Its socket is one hour old. Without a script it lists no
// pods.
func Start(t testing.TB, script ...Reply) *Server {
	t.Helper()
	// t.TempDir is not used, because the name of a test may make the path of the socket too long.
	dir, err := os.MkdirTemp("", "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, socket: filepath.Join(dir, "kubelet.sock"), script: script}
	t.Cleanup(func() {
		s.Stop()
		os.RemoveAll(dir)
	})
	s.Start()
	s.Born(time.Now().Add(-time.Hour))
	return s
}

// Born sets the modification time of the socket, as if the kubelet had started at that time.
func (s *Server) Born(at time.Time) {
	s.t.Helper()
	if err := os.Chtimes(s.socket, at, at); err != nil {
		s.t.Fatal(err)
	}
}

// Socket returns the path of the socket.
func (s *Server) Socket() string { return s.socket }

// Lists returns the number of List calls.
func (s *Server) Lists() int { return int(s.lists.Load()) }

// Script sets the replies to the next List calls, one for each call. The last reply is repeated.
func (s *Server) Script(replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = replies
}

// Allocatable sets the reply of GetAllocatableResources.
func (s *Server) Allocatable(devices ...*v1.ContainerDevices) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allocatable = devices
}

// Silence makes GetAllocatableResources hang until the caller gives up.
func (s *Server) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}

// Stop closes every connection and removes the socket.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.Stop()
		s.server = nil
	}
}

// Start serves again after Stop, on a new socket at the same path, like a restarted kubelet.
func (s *Server) Start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = grpc.NewServer()
	v1.RegisterPodResourcesListerServer(s.server, &current{s: s})
	server := s.server
	go func() {
		// Serve returns after Stop, and its error does not matter then.
		_ = server.Serve(mortal{Listener: listener, server: s})
	}()
}

func (s *Server) list(ctx context.Context) (*v1.ListPodResourcesResponse, error) {
	s.lists.Add(1)
	s.mu.Lock()
	reply := Lists()
	if len(s.script) > 0 {
		reply = s.script[0]
	}
	if len(s.script) > 1 {
		s.script = s.script[1:]
	}
	s.mu.Unlock()
	return reply(ctx, s)
}

type current struct {
	v1.UnimplementedPodResourcesListerServer
	s *Server
}

func (c *current) List(ctx context.Context, _ *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	return c.s.list(ctx)
}

func (c *current) GetAllocatableResources(ctx context.Context,
	_ *v1.AllocatableResourcesRequest) (*v1.AllocatableResourcesResponse, error) {
	c.s.mu.Lock()
	silent := c.s.silent
	c.s.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return &v1.AllocatableResourcesResponse{Devices: c.s.allocatable}, nil
}

// Get replies like a real kubelet that does not run the pod: codes.Unknown, not codes.NotFound.
func (c *current) Get(_ context.Context, r *v1.GetPodResourcesRequest) (*v1.GetPodResourcesResponse, error) {
	return nil, status.Errorf(codes.Unknown, "pod %s in namespace %s not found", r.PodName, r.PodNamespace)
}

// mortal accepts connections that can break or stall in the middle of a write.
type mortal struct {
	net.Listener
	server *Server
}

func (m mortal) Accept() (net.Conn, error) {
	c, err := m.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &mortalConn{Conn: c, server: m.server}, nil
}

type mortalConn struct {
	net.Conn
	server *Server
}

func (c *mortalConn) Write(p []byte) (int, error) {
	// Smaller writes are settings, pings and acknowledgments. Larger ones have a response.
	const answer = 64
	if len(p) < answer {
		return c.Conn.Write(p)
	}
	if release := c.server.stall.Swap(nil); release != nil {
		n, err := c.Conn.Write(p[:answer/2])
		if err != nil {
			return n, err
		}
		<-*release
		rest, err := c.Conn.Write(p[n:])
		return n + rest, err
	}
	if !c.server.dying.CompareAndSwap(true, false) {
		return c.Conn.Write(p)
	}
	n, err := c.Conn.Write(p[:answer/2])
	c.Conn.Close()
	if err == nil {
		err = net.ErrClosed
	}
	return n, err
}
