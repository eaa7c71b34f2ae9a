package command

import (
	"context"
	"fmt"
)

const onceUsage = `Usage: dcgm-exporter once [flags]

Collects once and prints the page that a scrape would return, without metrics of
the Go runtime and without the kernel log. If the counters file has profiling
fields (DCGM_FI_PROF_*), it reads once per second until they have values, for at
most five seconds. The flags are those of the exporter itself
(dcgm-exporter --help).

Exit code: 0 the page has data; 1 it has none, and its health series and the
message say why; 2 an invalid setting, or a file that cannot be read.
`

// once runs one real cycle and prints its page, even if it has no data.
func once(ctx context.Context, p *Process) int {
	cfg, code := p.settings()
	if cfg == nil {
		return code
	}
	for _, notice := range cfg.Notices {
		fmt.Fprintln(p.Err, notice)
	}
	page, err := p.Page(ctx, cfg)
	if page == nil && err != nil {
		return p.fail(Unable, err)
	}
	code = p.print(string(page))
	if err != nil {
		code = max(code, p.fail(Faulty, err))
	}
	return code
}
