package server

import (
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/prometheus/exporter-toolkit/web"

	"github.com/gpu-telemetry/dcgm-exporter/internal/access"
)

// ErrOpen: an endpoint that changes state or shows the inside of the process would be open to every
// caller.
var ErrOpen = errors.New("needs authentication in --web-config-file, or --address on loopback")

// checkAccess refuses protected endpoints that nothing protects, and a web configuration that would
// not load.
func (s *Server) checkAccess() error {
	o := &s.opt
	if o.Lifecycle && o.Reload == nil {
		return errors.New("server: Lifecycle needs Reload")
	}
	if err := web.Validate(s.opt.ConfigFile); err != nil {
		return fmt.Errorf("--web-config-file %s: %w", s.opt.ConfigFile, err)
	}
	var on string
	switch {
	case s.opt.Pprof:
		on = "--enable-pprof"
	case s.opt.Lifecycle:
		on = "--web-enable-lifecycle"
	default:
		return nil
	}
	if s.loopbackOnly() {
		return nil
	}
	closed, err := authenticates(s.opt.ConfigFile)
	if err != nil {
		return fmt.Errorf("--web-config-file %s: %w", s.opt.ConfigFile, err)
	}
	if !closed {
		return fmt.Errorf("%s %w", on, ErrOpen)
	}
	return nil
}

func (s *Server) loopbackOnly() bool {
	return !s.opt.SystemdSocket && access.IsLoopback(s.opt.Address)
}

// protected lets a request through if it came over loopback or was authenticated. exporter-toolkit
// reads its file again for every request, so a file that lost its users since the start must close
// what they were for.
func (s *Server) protected(next http.Handler) http.Handler {
	if s.loopbackOnly() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if closed, err := authenticates(s.opt.ConfigFile); err != nil || !closed {
			http.Error(w, "this endpoint "+ErrOpen.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authenticates reads the web configuration and reports whether it lets in authenticated callers
// alone.
func authenticates(file string) (bool, error) {
	if file == "" {
		return false, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	return access.Authenticates(data)
}
