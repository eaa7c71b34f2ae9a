package pagefuzz

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

type srv struct {
	v1.UnimplementedPodResourcesListerServer
}

func (srv) List(ctx context.Context, _ *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	return &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{kubelet.Pod("a/b", kubelet.Container("c", "nvidia.com/gpu", "GPU-1"))}}, nil
}

func TestTry(t *testing.T) {
	begin := time.Now()
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			l := bufconn.Listen(1 << 16)
			s := grpc.NewServer()
			v1.RegisterPodResourcesListerServer(s, srv{})
			go s.Serve(l)
			m := podmapper.New(podmapper.Options{Metrics: podmapper.NewMetrics(prometheus.NewRegistry())})
			m.DialWith(func(ctx context.Context) (net.Conn, error) { return l.DialContext(ctx) })
			top := gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-1"}})
			for range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				o, err := m.Attribute(ctx, top)
				cancel()
				if err != nil || len(o.Of(0)) == 0 {
					t.Error(err, o)
				}
				time.Sleep(10 * time.Second)
			}
			m.Close()
			s.Stop()
			l.Close()
		})
	}
	t.Log(time.Since(begin))
}
