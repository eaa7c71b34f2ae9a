package lint

import (
	"fmt"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// twice reports flags that set a key again. The reader reports a file's duplicate keys.
func (in *installation) twice() {
	last := map[string]*model.Setting{}
	for _, s := range in.Settings {
		before := last[s.Name()]
		last[s.Name()] = s
		if before == nil || before.Node != nil || s.Node != nil || before.Perhaps || s.Perhaps {
			continue
		}
		before.Edit.Drop = true
		if before.Text() == s.Text() {
			in.add("set-twice", report.Note, "set twice to the same value", "keep one", "Helm documentation: --set", s)
			continue
		}
		in.add("set-twice", report.Warning, fmt.Sprintf("set twice; %q counts, %q is lost", s.Text(), before.Text()), "keep one", "Helm documentation: --set", s)
	}
}
