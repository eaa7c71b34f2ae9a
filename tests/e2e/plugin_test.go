//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugin is a device plugin that offers devices as one resource. It only allocates, and passes nothing to containers.
type plugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	resource string
	ids      []string
	stop     context.Context // done when the plugin has to stop
}

func (p *plugin) GetDevicePluginOptions(context.Context,
	*deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *deviceplugin.Empty,
	stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	var all deviceplugin.ListAndWatchResponse
	for _, id := range p.ids {
		all.Devices = append(all.Devices, &deviceplugin.Device{ID: id, Health: deviceplugin.Healthy})
	}
	if err := stream.Send(&all); err != nil {
		return err
	}
	select { // the list of devices never changes
	case <-stream.Context().Done():
	case <-p.stop.Done():
	}
	return nil
}

func (p *plugin) Allocate(_ context.Context, r *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	var out deviceplugin.AllocateResponse
	for range r.ContainerRequests {
		out.ContainerResponses = append(out.ContainerResponses, &deviceplugin.ContainerAllocateResponse{})
	}
	return &out, nil
}

// servePlugins offers resources until the test ends. When a kubelet starts, it deletes the sockets of plugins, which
// then register again.
func servePlugins(t *testing.T, n *node, resources map[string][]string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for resource, ids := range resources {
		p := &plugin{resource: resource, ids: ids, stop: ctx}
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := p.session(ctx, n.kubelet("device-plugins")); err != nil && ctx.Err() == nil {
					t.Logf("device plugin %s: %v", resource, err)
					pause(ctx)
				}
			}
		})
	}
}

// session serves the plugin and registers it once. It returns when the kubelet deletes the socket or ctx is done.
func (p *plugin) session(ctx context.Context, folder string) error {
	socket := filepath.Join(folder, "e2e-"+filepath.Base(p.resource)+".sock")
	server, err := serve(socket, func(s *grpc.Server) { deviceplugin.RegisterDevicePluginServer(s, p) })
	if err != nil {
		return err
	}
	defer server.Stop()
	conn, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	calling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err = deviceplugin.NewRegistrationClient(conn).Register(calling, &deviceplugin.RegisterRequest{
		Version: deviceplugin.Version, Endpoint: filepath.Base(socket), ResourceName: p.resource,
	}); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	for ctx.Err() == nil {
		if _, err := os.Stat(socket); err != nil {
			return nil
		}
		pause(ctx)
	}
	return nil
}

// serve starts a gRPC server on a Unix socket. An existing socket file is replaced.
func serve(socket string, register func(*grpc.Server)) (*grpc.Server, error) {
	if err := os.RemoveAll(socket); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	register(server)
	go func() { _ = server.Serve(listener) }() // returns when the server is stopped
	return server, nil
}

// pause waits before the next poll, or until ctx is done.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(200 * time.Millisecond):
	}
}
