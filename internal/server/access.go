package server

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/gpu-telemetry/dcgm-exporter/internal/access"
)

// ErrOpen reports that a protected endpoint, such as /-/reload or /debug/pprof/, would be open to every
// caller.
var ErrOpen = errors.New("needs authentication in --web-config-file, or --address on loopback")

// checkAccess refuses protected endpoints that nothing protects, and a web configuration that would
// not load.
func (s *Server) checkAccess() error {
	o := &s.opt
	if o.Lifecycle && o.Reload == nil {
		return errors.New("server: Lifecycle needs Reload")
	}
	if err := s.web.load(); err != nil {
		return err
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
	if !s.web.facts().authenticates {
		return fmt.Errorf("%s %w", on, ErrOpen)
	}
	return nil
}

func (s *Server) loopbackOnly() bool {
	return !s.opt.SystemdSocket && access.IsLoopback(s.opt.Address)
}

// protected lets a request through if it came over loopback or was authenticated itself: by its password, which
// exporter-toolkit has checked, or by the client certificate of its connection. A connection that was opened before
// certificates were demanded has none. A page of another site never gets through.
func (s *Server) protected(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _, password := r.BasicAuth()
		authenticated := password && s.web.facts().users || r.TLS != nil && len(r.TLS.VerifiedChains) > 0
		switch {
		case r.Header.Get("Sec-Fetch-Site") == "cross-site":
			http.Error(w, "this endpoint is not for pages of other sites", http.StatusForbidden)
		case !authenticated && (!s.local.Load() || s.web.facts().authenticates):
			http.Error(w, "this endpoint "+ErrOpen.Error(), http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ReloadWebConfig reads the file of TLS and passwords again, with its certificates. After an error the configuration
// before goes on.
func (s *Server) ReloadWebConfig() error { return s.web.load() }

// WebFiles returns the files of the web configuration in force, to be watched.
func (s *Server) WebFiles() []string { return s.web.facts().files }
