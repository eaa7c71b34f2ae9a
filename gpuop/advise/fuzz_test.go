package advise_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/advise"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/telemetry"
)

// Whatever a page says, each workload is in one recommendation, what is freed is what is not needed,
// and the advice can be written as JSON.
func FuzzPage(f *testing.F) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "examples", "gpus.prom"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(page), false)
	f.Add("DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID=\"a\",pod=\"p\"} +Inf\nDCGM_FI_DEV_FB_USED{UUID=\"a\",pod=\"p\"} NaN\n", true)
	f.Add("DCGM_FI_DEV_FB_USED{UUID=\"a\",GPU_I_ID=\"1\",GPU_I_PROFILE=\"3g.40gb\",pod=\"p\",modelName=\"NVIDIA A30\"} -5\nDCGM_FI_DEV_FB_FREE{UUID=\"a\"} 1e300\n", false)
	f.Add("dcgm_pod_gpu_info{UUID=\"a\",pod=\"p\",sharing=\"mps\",replicas=\"-3\"} 1\ndcgm_pod_gpu_utilization_ratio{UUID=\"a\",pod=\"q\"} 7\n", false)
	f.Fuzz(func(t *testing.T, text string, trusted bool) {
		pages := &telemetry.Pages{Places: []string{"page"}, Read: func(string) ([]byte, error) { return []byte(text), nil }}
		u, err := pages.Usage(t.Context())
		if err != nil {
			return
		}
		a := advise.Judge(u, advise.Options{Trusted: trusted})
		if _, err := json.Marshal(a); err != nil {
			t.Fatal(err)
		}
		workloads := map[string]bool{}
		for _, m := range a.Models {
			for _, r := range m.Recommendations {
				if len(r.Workloads) == 0 || r.Needed < 0 || r.Confidence != "low" {
					t.Errorf("%+v", r)
				}
				for _, w := range r.Workloads {
					key := m.Product + "\x00" + w.Namespace + "\x00" + w.Name
					if workloads[key] {
						t.Errorf("%q is in two recommendations", key)
					}
					workloads[key] = true
				}
			}
			if m.Freed != m.Used-m.Needed || m.Freed < 0 || m.Used > m.GPUs {
				t.Errorf("%d freed of %d used of %d", m.Freed, m.Used, m.GPUs)
			}
		}
	})
}
