package gpu_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestTyped(t *testing.T) {
	_, missing := os.Stat(t.TempDir() + "/x")
	network := func(call string, number syscall.Errno) error {
		return &net.OpError{Op: call, Err: os.NewSyscallError(call, number)}
	}
	for name, tt := range map[string]struct{ err, want error }{
		"a deadline":          {context.DeadlineExceeded, gpu.ErrTimeout},
		"no file":             {missing, gpu.ErrUnavailable},
		"no permission":       {&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, gpu.ErrPermission},
		"nothing listens":     {network("connect", syscall.ECONNREFUSED), gpu.ErrUnavailable},
		"a closed connection": {network("read", syscall.ECONNRESET), gpu.ErrUnavailable},
		"an unexpected end":   {io.ErrUnexpectedEOF, gpu.ErrUnavailable},
		"a canceled request":  {context.Canceled, nil},
	} {
		got := gpu.WrapFSError(tt.err)
		if !errors.Is(got, tt.err) {
			t.Errorf("%s: error = %v, want one that wraps %v", name, got, tt.err)
		}
		if tt.want == nil && got != tt.err || tt.want != nil && !errors.Is(got, tt.want) {
			t.Errorf("%s: error = %v, want %v", name, got, tt.want)
		}
	}
}
