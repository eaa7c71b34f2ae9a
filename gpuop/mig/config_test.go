package mig

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// All 81 default configs of NVIDIA are parsed. Each entry equals the result of Default, and fits every board to which
// it may apply.
func TestUpstreamDefaultsAreFeasible(t *testing.T) {
	data := material.Read(t, "data/upstream/mig-parted/config-default.yaml")
	c, findings := ParseConfig(data)
	for _, f := range findings {
		if f.Severity > check.Note {
			t.Errorf("line %d: unexpected finding about %s: %s", f.Line, f.Subject, f.Reason)
		}
	}
	if len(c) != 81 {
		t.Fatalf("%d configs read, want 81", len(c))
	}
	pairs := 0
	for _, n := range c {
		for _, e := range n.Entries {
			boards := e.candidates()
			if e.Enabled && len(e.Devices) > 0 && len(boards) == 0 {
				t.Errorf("%s: no board has %s", n.Name, e.Devices)
			}
			for _, b := range boards {
				if !e.Enabled || len(e.Devices) == 0 {
					continue
				}
				pairs++
				if d, err := Default(b, n.Name); err != nil || !cmp.Equal(d.Devices, e.Devices) {
					t.Errorf("%s on %s: default = %v, error = %v, want %v", n.Name, b.Name, d.Devices, err, e.Devices)
				}
				if _, err := Fit(b, e.Devices); err != nil {
					t.Errorf("%s: %v", n.Name, err)
				}
			}
		}
	}
	t.Logf("%d board and config pairs", pairs)
}

func TestParseConfigFindings(t *testing.T) {
	entry := func(lines ...string) string {
		return "version: v1\nmig-configs:\n  mine:\n    - " + strings.Join(lines, "\n      ") + "\n"
	}
	for name, tc := range map[string]struct {
		file string
		want []string // each is "line check subject"
	}{
		"clean": {entry("devices: all", "mig-enabled: true", "mig-devices:", `  "3g.40gb": 1`, `  "1g.10gb": 4`), nil},
		"too large, but accepted by mig-parted's validator": {
			entry("devices: all", "mig-enabled: true", "mig-devices: {3g.20gb: 2, 1g.5gb: 1}"),
			[]string{"6 mig-does-not-fit mig-configs.mine[0].mig-devices"},
		},
		"config spelling of a profile": {
			entry("devices: all", "mig-enabled: true", "mig-devices: {1g.10gb.me: 1}"),
			[]string{"6 mig-profile mig-configs.mine[0].mig-devices.1g.10gb.me"},
		},
		"compute instance":    {entry("devices: all", "mig-enabled: true", "mig-devices: {1c.3g.20gb: 1}"), []string{"6 mig-profile mig-configs.mine[0].mig-devices.1c.3g.20gb"}},
		"profile of no board": {entry("devices: all", "mig-enabled: true", "mig-devices: {1g.11gb: 1}"), []string{"6 mig-profile mig-configs.mine[0].mig-devices.1g.11gb"}},
		"profiles of two boards": {
			entry("devices: all", "mig-enabled: true", "mig-devices: {1g.5gb: 1, 1g.6gb: 1}"),
			[]string{"6 mig-does-not-fit mig-configs.mine[0].mig-devices"},
		},
		"too many instances for some boards": {entry("devices: all", "mig-enabled: true", "mig-devices: {1g.10gb: 7}"), nil},
		"filter for the wrong board": {
			entry(`device-filter: "0x20B010DE"`, "devices: all", "mig-enabled: true", "mig-devices: {1g.20gb: 1}"),
			[]string{"7 mig-does-not-fit mig-configs.mine[0].mig-devices"},
		},
		"filters in other formats": {
			entry(`device-filter: ["10de:20b0", "A100"]`, "devices: all", "mig-enabled: false"),
			[]string{"4 mig-device-filter mig-configs.mine[0].device-filter", "4 mig-device-filter mig-configs.mine[0].device-filter"},
		},
		"misspelled key":                {entry("device: all", "mig-enabled: false"), []string{"4 mig-config-missing mig-configs.mine[0]", "4 unknown-key mig-configs.mine[0].device"}},
		"MIG disabled with instances":   {entry("devices: all", "mig-enabled: false", "mig-devices: {1g.5gb: 1}"), []string{"6 mig-mode mig-configs.mine[0]"}},
		"MIG enabled without instances": {entry("devices: all", "mig-enabled: true"), []string{"4 mig-mode mig-configs.mine[0]"}},
		"devices: some":                 {entry("devices: some", "mig-enabled: false"), []string{"4 wrong-type mig-configs.mine[0].devices"}},
		"quoted bool":                   {entry("devices: all", `mig-enabled: "true"`), []string{"5 wrong-type mig-configs.mine[0].mig-enabled"}},
		"GPU 0 left out": {
			entry("devices: [1]", "mig-enabled: false"),
			[]string{"3 mig-coverage mig-configs.mine"},
		},
		"a name that is not a label value": {
			"version: v1\nmig-configs:\n  all-1g.10gb+me:\n    - devices: all\n      mig-enabled: false\n",
			[]string{"3 mig-config-name mig-configs.all-1g.10gb+me"},
		},
		"unknown version and root key": {"version: v2\nmigConfigs: {}\n", []string{"1 mig-config-missing mig-configs", "1 mig-config-version version", "2 unknown-key migConfigs"}},
		"no version":                   {"mig-configs: {}\n", []string{"1 mig-config-missing mig-configs", "1 mig-config-missing version"}},
		"empty config":                 {"version: v1\nmig-configs:\n  x: []\n", []string{"3 mig-config-missing mig-configs.x"}},
		"duplicate key":                {entry("devices: all", "mig-enabled: false", "mig-enabled: false"), []string{"6 duplicate-key mig-configs.mine[0].mig-enabled"}},
		"copied ellipsis":              {"version: v1\nmig-configs:\n  x:\n    - devices: all\n    ...\n", []string{"5 yaml-ellipsis ..."}},
		"tab":                          {"version: v1\n\tx: y\n", []string{"2 yaml-syntax "}},
		"empty file":                   {"", []string{"0 yaml-syntax "}},
		"not a mapping":                {"- 1\n", []string{"1 wrong-type "}},
		"a word for configs":           {"version: v1\nmig-configs: all\n", []string{"2 wrong-type mig-configs"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, findings := ParseConfig([]byte(tc.file))
			found := check.Report{Findings: findings}
			found.Sort()
			var got []string
			for _, f := range findings {
				got = append(got, fmt.Sprintf("%d %s %s", f.Line, f.Check.ID, f.Subject))
				if f.Reason == "" {
					t.Errorf("finding without reason: %+v", f)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// ParseConfig returns a config or a finding of severity error for any text.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("version: v1\nmig-configs:\n  a:\n    - device-filter: [\"0x20B010DE\"]\n      devices: [0, 1]\n      mig-enabled: true\n      mig-devices: {\"1g.5gb+me\": 1, 3g.20gb: 1}\n  \"true\":\n    - devices: all\n      mig-enabled: false\n"))
	f.Add([]byte("version: v1\nx: &x\n  <<: *x\nmig-configs: {y: [*x]}"))
	f.Add([]byte("- - -"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, findings := ParseConfig(data)
		if slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Severity == check.Error }) {
			return
		}
		if c == nil {
			t.Fatal("ParseConfig returned neither a config nor an error")
		}
	})
}

func TestConfigMapsOfANode(t *testing.T) {
	for custom, want := range map[string]string{
		"":                          "gpu-1-mig-config default-mig-parted-config",
		"ours":                      "ours",
		"default-mig-parted-config": "default-mig-parted-config",
	} {
		if got := strings.Join(ConfigMaps("gpu-1", custom), " "); got != want {
			t.Errorf("migManager.config.name=%q: ConfigMaps = %s, want %s", custom, got, want)
		}
	}
}
