package manifests

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// A pluginConfig is a configuration of node-problem-detector's custom plugins. The fields are those of
// pkg/custompluginmonitor/types at commit 6632ca67.
type pluginConfig struct {
	Plugin       string `json:"plugin"`
	PluginConfig struct {
		InvokeInterval  string `json:"invoke_interval"`
		Timeout         string `json:"timeout"`
		MaxOutputLength int    `json:"max_output_length"`
		Concurrency     int    `json:"concurrency"`
		MessageChanges  bool   `json:"enable_message_change_based_condition_update"`
	} `json:"pluginConfig"`
	Source           string `json:"source"`
	MetricsReporting bool   `json:"metricsReporting"`
	Conditions       []struct {
		Type    string `json:"type"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"conditions"`
	Rules []struct {
		Type      string   `json:"type"`
		Condition string   `json:"condition"`
		Reason    string   `json:"reason"`
		Path      string   `json:"path"`
		Args      []string `json:"args"`
		Timeout   string   `json:"timeout"`
	} `json:"rules"`
}

// TestNodeProblemDetector checks that the configuration has only fields that node-problem-detector supports. It runs
// the configuration's rules for each verdict, and expects the conditions that belong to the verdict.
func TestNodeProblemDetector(t *testing.T) {
	decoder := json.NewDecoder(strings.NewReader(
		folder.Read(t, root, "deployment", "node-problem-detector", "gpu-verdict.json")))
	decoder.DisallowUnknownFields()
	var c pluginConfig
	if err := decoder.Decode(&c); err != nil {
		t.Fatal(err)
	}
	duration := func(text string) time.Duration {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			t.Errorf("%q is not a positive duration (error %v)", text, err)
		}
		return d
	}
	limit := duration(c.PluginConfig.Timeout)
	if c.Plugin != "custom" || c.Source == "" || duration(c.PluginConfig.InvokeInterval) < limit || len(c.Rules) != 2 {
		t.Errorf("configuration = %+v, want plugin custom, a source, two rules, and an interval not below the timeout",
			c)
	}
	verdicts := map[string]string{
		"ok": "", "watch": "GPUSuspect", "drain": "GPUSuspect GPUUnfit", "replace": "GPUSuspect GPUUnfit",
		"unknown": "",
	}
	for verdict, want := range verdicts {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `dcgm_exporter_gpu_verdict{gpu="0",UUID="GPU-0",verdict="`+verdict+`"} 1`+"\n")
		}))
		var unfit []string
		for _, rule := range c.Rules {
			if rule.Type != "permanent" || rule.Path != "/usr/bin/dcgm-exporter" || rule.Reason == "" ||
				duration(rule.Timeout) > limit {
				t.Errorf("rule = %+v, want type permanent, path /usr/bin/dcgm-exporter, a reason, "+
					"and a timeout of at most %v", rule, limit)
			}
			known := false
			for _, condition := range c.Conditions {
				known = known || condition.Type == rule.Condition && condition.Reason != "" && condition.Message != ""
			}
			if !known {
				t.Errorf("condition %s has no entry with a reason and a message, want one", rule.Condition)
			}
			last := len(rule.Args) - 1
			if rule.Args[last] != "http://127.0.0.1:9400/metrics" {
				t.Errorf("arguments = %q, want the exporter's default URL as the last one", rule.Args)
			}
			args := append(slices.Clone(rule.Args[1:last]), server.URL)
			var out bytes.Buffer
			code := command.Run(t.Context(), rule.Args[0],
				command.Process{Args: args, ReadFile: os.ReadFile, Out: &out, Err: &out})
			switch {
			case code == 1:
				unfit = append(unfit, rule.Condition)
			case verdict == "unknown" && code == 2: // node-problem-detector sets a condition to Unknown for the exit code 2
			case code != 0 || verdict == "unknown":
				t.Errorf("%q with verdict %s: exit code = %d, want 2 for the verdict unknown, "+
					"and 0 or 1 for others; output:\n%s", args, verdict, code, out.String())
			}
		}
		server.Close()
		slices.Sort(unfit)
		if got := strings.Join(unfit, " "); got != want {
			t.Errorf("verdict %s: conditions = %q, want %q", verdict, got, want)
		}
	}
}
