package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/telemetry"
)

// measured is how a user says where the telemetry is.
type measured struct {
	prometheus, window, until, selector, tokenFile string
	pages                                          []string
	apart                                          time.Duration
}

func (m *measured) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.prometheus, "prometheus", "", "the `URL` of a Prometheus, or of what speaks its HTTP API")
	cmd.Flags().StringArrayVar(&m.pages, "scrape", nil, "an exporter's `URL`, or a file with its /metrics page, in place of --prometheus; may be repeated")
	cmd.Flags().StringVar(&m.until, "until", "", "when the window ends, as RFC 3339 `time` (now)")
	cmd.Flags().StringVar(&m.selector, "selector", "", "further label `matchers` of the series, as in PromQL: cluster=\"prod\"")
	cmd.Flags().StringVar(&m.tokenFile, "bearer-token-file", "", "a `file` with the token that Prometheus wants")
}

// check refuses what does not go together.
func (m *measured) check() error {
	switch {
	case m.prometheus == "" && len(m.pages) == 0:
		return fmt.Errorf("%w: say where the telemetry is, with --prometheus URL or --scrape URL|FILE", errUsage)
	case m.prometheus != "" && len(m.pages) > 0:
		return fmt.Errorf("%w: --prometheus beside --scrape; name one of them", errUsage)
	case len(m.pages) > 0 && (m.until != "" || m.selector != "" || m.tokenFile != "" || m.window != ""):
		return fmt.Errorf("%w: --window, --until, --selector and --bearer-token-file are for --prometheus; a scrape is of now", errUsage)
	}
	return nil
}

// server is the Prometheus, and the time at which the window ends.
func (m *measured) server() (*telemetry.Server, time.Time, error) {
	s := &telemetry.Server{URL: m.prometheus, Selector: m.selector}
	if m.tokenFile != "" {
		token, err := os.ReadFile(m.tokenFile)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("--bearer-token-file: %w", err)
		}
		s.Token = string(bytes.TrimSpace(token))
	}
	end := time.Now()
	if m.until != "" {
		var err error
		if end, err = time.Parse(time.RFC3339, m.until); err != nil {
			return nil, time.Time{}, fmt.Errorf("%w: --until %q, want a time such as 2026-11-22T18:00:00Z", errUsage, m.until)
		}
	}
	return s, end.UTC(), nil
}

func (m *measured) places(e *env) *telemetry.Pages {
	return &telemetry.Pages{Places: m.pages, Apart: m.apart, Read: e.read}
}

// usage reads what the GPUs did.
func (m *measured) usage(ctx context.Context, e *env) (*telemetry.Usage, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	if len(m.pages) > 0 {
		return m.places(e).Usage(ctx)
	}
	if m.window == "" {
		m.window = "7d"
	}
	window, err := model.ParseDuration(m.window)
	if err != nil || time.Duration(window) < time.Minute {
		return nil, fmt.Errorf("%w: --window %q, want a duration such as 7d, 36h or 90m", errUsage, m.window)
	}
	s, end, err := m.server()
	if err != nil {
		return nil, err
	}
	return s.Usage(ctx, time.Duration(window), end)
}
