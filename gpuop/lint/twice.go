package lint

import (
	"fmt"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// twice reports flags that set a key again. The reader reports a file's duplicate keys.
func (in *installation) twice() {
	last := map[string]*setting{}
	for _, s := range in.settings {
		before := last[s.name()]
		last[s.name()] = s
		if before == nil || before.node != nil || s.node != nil {
			continue
		}
		before.edit.Drop = true
		if before.text() == s.text() {
			in.add("set-twice", report.Note, "set twice to the same value", "keep one", "Helm documentation: --set", s)
			continue
		}
		in.add("set-twice", report.Warning, fmt.Sprintf("set twice; %q counts, %q is lost", s.text(), before.text()), "keep one", "Helm documentation: --set", s)
	}
}
