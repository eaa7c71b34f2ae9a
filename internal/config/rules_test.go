package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestProtected holds that endpoints which change or show the inside of the process are served to
// those alone who prove who they are, or are near.
func TestProtected(t *testing.T) {
	files := map[string]string{
		"/auth.yaml": "basic_auth_users: {me: $2y$10$x}",
		"/cert.yaml": "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAndVerifyClientCert, client_ca_file: c}",
		"/tls.yaml":  "tls_server_config: {cert_file: a, key_file: b}",
		"/bad.yaml":  "basic_auth_users: [me]",
	}
	const open = " is not served: it needs --web-config-file with authentication, or --address on loopback such as 127.0.0.1:9400."
	const unlocked = " has none: expected basic_auth_users, or tls_server_config with client_auth_type: RequireAndVerifyClientCert."
	tests := []struct {
		name   string
		env    map[string]string
		args   []string
		served int      // of the two
		says   []string // notices, or
		err    string
	}{
		{"profiles", nil, []string{"--enable-pprof"}, 0, []string{"--enable-pprof" + open}, ""},
		{"reload, by variable", map[string]string{"DCGM_EXPORTER_WEB_ENABLE_LIFECYCLE": "1"}, nil, 0, []string{"DCGM_EXPORTER_WEB_ENABLE_LIFECYCLE" + open}, ""},
		{"both", nil, []string{"--enable-pprof", "--web-enable-lifecycle"}, 0, []string{"--web-enable-lifecycle" + open, "--enable-pprof" + open}, ""},
		{"on loopback", nil, []string{"--enable-pprof", "--web-enable-lifecycle", "-a=127.0.0.1:9400"}, 2, nil, ""},
		{"on loopback by name", nil, []string{"--enable-pprof", "-a=localhost:9400"}, 1, nil, ""},
		{"on loopback of IPv6", nil, []string{"--enable-pprof", "-a=[::1]:9400"}, 1, nil, ""},
		{"on a socket of systemd", nil, []string{"--enable-pprof", "--web-systemd-socket"}, 0, []string{"--enable-pprof" + open}, ""},
		{"on a socket of systemd, whatever the address", nil, []string{"--enable-pprof", "--web-systemd-socket", "-a=[::1]:9400"}, 0,
			[]string{"--address has no effect beside --web-systemd-socket.", "--enable-pprof" + open}, ""},
		{"with passwords", nil, []string{"--enable-pprof", "--web-config-file=/auth.yaml"}, 1, nil, ""},
		{"with client certificates", nil, []string{"--enable-pprof", "--web-config-file=/cert.yaml"}, 1, nil, ""},
		{"with encryption alone", nil, []string{"--enable-pprof", "--web-config-file=/tls.yaml"}, 0,
			[]string{"--enable-pprof is not served: it needs authentication, and --web-config-file /tls.yaml" + unlocked}, ""},
		{"with encryption alone on loopback", nil, []string{"--enable-pprof", "--web-config-file=/tls.yaml", "-a=127.0.0.1:1"}, 1, nil, ""},
		{"with a web configuration that is not there", nil, []string{"--enable-pprof", "--web-config-file=/none.yaml"}, 0, nil, "--web-config-file: open /none.yaml: file does not exist"},
		{"with a broken web configuration", nil, []string{"--enable-pprof", "--web-config-file=/bad.yaml"}, 0, nil, "--web-config-file /bad.yaml: yaml: unmarshal errors:\n  line 1: cannot unmarshal !!seq into map[string]string"},
		{"a web configuration alone is not read", nil, []string{"--web-config-file=/none.yaml"}, 0, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := world{env: tt.env, files: files}
			if tt.err != "" {
				_, err := w.parse(tt.args...)
				wantError(t, err, tt.err)
				return
			}
			c := mustParse(t, w, tt.args...)
			served := 0
			for _, on := range []bool{c.Web.Pprof, c.Web.Lifecycle} {
				if on {
					served++
				}
			}
			if served != tt.served {
				t.Errorf("%d of the two are served, want %d", served, tt.served)
			}
			if diff := cmp.Diff(tt.says, c.Notices); diff != "" {
				t.Errorf("notices differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStrict holds what --compatibility=strict means for other settings, and that each of them
// given on its own wins.
func TestStrict(t *testing.T) {
	type meaning struct{ Health, Accounting, Exporter, Copies bool }
	tests := []struct {
		name string
		env  map[string]string
		args []string
		want meaning
	}{
		{"off", nil, []string{"--hpc-job-mapping-dir=/jobs"}, meaning{true, true, true, false}},
		{"by variable", map[string]string{"DCGM_EXPORTER_COMPATIBILITY": "strict"}, nil, meaning{}},
		{"with jobs", nil, []string{"--compatibility=strict", "--hpc-job-mapping-dir=/jobs"}, meaning{Copies: true}},
		{"with jobs as they are", nil, []string{"--compatibility=strict", "--hpc-job-mapping-dir=/jobs", "--hpc-job-copies=false"}, meaning{}},
		{"with health", nil, []string{"--compatibility=strict", "--enable-health-metrics"}, meaning{Health: true}},
		{"with accounts, by variable", map[string]string{"DCGM_EXPORTER_ENABLE_ACCOUNTING_METRICS": "1"}, []string{"--compatibility=strict"}, meaning{Accounting: true}},
		{"with itself", nil, []string{"--compatibility=strict", "--enable-exporter-metrics"}, meaning{Exporter: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := mustParse(t, world{env: tt.env}, tt.args...)
			if diff := cmp.Diff(tt.want, meaning{c.Metrics.Health, c.Metrics.Accounting, c.Web.ExporterMetrics, c.HPC.Copies}); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
			if c.Notices != nil {
				t.Errorf("notices %q", c.Notices)
			}
		})
	}
}

// TestLaterPartsSpeak holds that no setting is swallowed: whatever the status column says is not
// there yet gives a notice, and nothing else does.
func TestLaterPartsSpeak(t *testing.T) {
	files := map[string]string{"/c.yaml": "version: 1", "/web.yaml": "basic_auth_users: {me: $2y$10$x}"}
	for _, o := range table() {
		example := examples()[o.id()]
		if o.isSwitch() {
			example.value = "true"
			if o.def == "true" {
				example.value = "false"
			}
		}
		for need := o.needs; need != ""; {
			other := (&parser{options: table()}).lookup(need)
			if flag := "--" + need; other.isSwitch() {
				example.with = append(example.with, flag)
			} else {
				example.with = append(example.with, flag+"="+examples()[need].value)
			}
			example.with = append(example.with, examples()[need].with...)
			need = other.needs
		}
		c := mustParse(t, world{env: map[string]string{o.variables()[0]: example.value}, files: files}, example.with...)
		spoken := false
		for _, n := range c.Notices {
			spoken = spoken || strings.HasPrefix(n, o.variables()[0]+" ") || strings.HasPrefix(n, "--"+o.name+" ")
		}
		if want := o.unused != ""; spoken != want {
			t.Errorf("%s: notice %t, want %t: %q", o.id(), spoken, want, c.Notices)
		}
	}
}

func TestHash(t *testing.T) {
	files := map[string]string{
		"/a.yaml": "version: 1\nmetrics: {fields: [{name: A, prometheusType: gauge}]}\n",
		"/b.yaml": "version: 1\nmetrics: {fields: [{name: A, prometheusType: counter}]}\n",
		"/c.yaml": "version: 1\ncollection: {watchGroups: [{name: g, interval: 1s, fields: [A]}]}\n",
		"/d.yaml": "version: 1\ncollection: {watchGroups: [{name: g, interval: 2s, fields: [A]}]}\n",
	}
	seen := map[uint64]string{}
	note := func(what string, h uint64) {
		if other, dup := seen[h]; dup {
			t.Errorf("%s has the hash of %s", what, other)
		}
		if float := float64(h); uint64(float) != h {
			t.Errorf("%s: a float64 does not hold %d", what, h)
		}
		seen[h] = what
	}
	w := world{files: files}
	plain := mustParse(t, w)
	note("the default", plain.Hash())
	note("a file", plain.Hash([]byte("x")))
	note("two files", plain.Hash([]byte("x"), []byte("y")))
	note("other files", plain.Hash([]byte("xy"), nil))
	note("an interval", mustParse(t, w, "-c=1000").Hash())
	for name := range files {
		c := mustParse(t, w, "--config-file="+name)
		c.Path = "" // what the file says counts here
		note(name, c.Hash())
	}
	// Nodes that are configured alike differ in these, and in nothing else.
	node := func(name string, more ...string) uint64 {
		w := world{files: files, env: map[string]string{"NODE_NAME": name}}
		return mustParse(t, w, more...).Hash([]byte("x"))
	}
	one := node("node-1", "--address=10.0.0.1:9400", "-r=10.0.0.1:5555")
	if two := node("node-2", "--address=10.0.0.2:9400", "-r=10.0.0.2:5555"); one != two {
		t.Errorf("two nodes that are configured alike: %d and %d", one, two)
	}
	if two := node("node-2", "--address=10.0.0.2:9400", "-r=10.0.0.2:5555", "-k=true"); one == two {
		t.Error("a node with another flag has the same hash")
	}
	if a, b := plain.Hash([]byte("x")), mustParse(t, w, "-c=30000").Hash([]byte("x")); a != b {
		t.Errorf("the same configuration hashes to %d and %d", a, b)
	}
}
