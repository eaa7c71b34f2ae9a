package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFlagsPage(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "flags.md")
	want := markdown()
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/flags.md is out of date: run go test ./internal/config -run ^TestFlagsPage$ -update (-want +got):\n%s", diff)
	}
}

// markdown returns docs/flags.md.
func markdown() string {
	var b strings.Builder
	b.WriteString(`# Flags, environment variables and the YAML file

<!-- Generated from internal/config/table.go by "go test ./internal/config -run TestFlagsPage -update". -->

Flags override environment variables, variables override the YAML file, and the file overrides the defaults. An empty
variable counts as unset.

Flags take one dash or two. Write the value after a space or an equals sign: ` + "`-f x`, `--collectors x`" + `
and ` + "`--collectors=x`" + ` are the same. The value of a switch needs an equals sign: ` + "`--kubernetes`" + ` or
` + "`--kubernetes=false`" + `. If a flag is repeated, the last one wins; lists are joined. Unknown flags and invalid values
stop the program at start with a message that names them.

The exporter accepts every combination that NVIDIA's exporter accepts. It logs a warning that says which setting wins:

| you set | is used |
|---|---|
| ` + "`--collectors` and `--configmap-data`" + ` | the ConfigMap, unless it is ` + "`none`" + ` |
| ` + "`--address` and `--web-systemd-socket`" + ` | the sockets from systemd |
| ` + "`--hostname-label` and `--no-hostname`" + ` | no host label |
| ` + "`--remote-hostengine-info` and `--source=nvml` or `sim`" + ` | the source |
| an invalid value of a setting without effect, or whose switch is off | the default |
| an empty flag, or a number out of range (` + "`-c 0`, `--web-max-requests=-1`" + `) | the default |
| a window of 0 or less (` + "`-x 0`" + `) | 0: nothing is counted |
| an invalid regular expression in an allowlist | the other expressions; if there are none, as without the flag |
| ` + "`--kubernetes true`, `-k false`" + ` | the value, as with an equals sign |
| ` + "`--enable-pprof` or `--web-enable-lifecycle`" + `, without authentication and not on loopback | the routes answer 403 |
| pod labels, pod UIDs or DRA, without ` + "`NODE_NAME`" + ` | none of them; ` + "`dcgm_exporter_kubernetes_api_success`" + ` is 0 |
`)
	section := ""
	for _, o := range table() {
		if o.section != section {
			section = o.section
			fmt.Fprintf(&b, "\n## %s\n\n| flag | variable | default | description |\n|---|---|---|---|\n", section)
		}
		text := o.help + " " + o.expects()
		if more := details[o.id()]; more != "" {
			text = o.help + " " + more + " " + o.expects()
		}
		if o.key != "" {
			text += " In the YAML file: `" + o.key + "`."
		}
		if o.needs != "" {
			text += " Requires `--" + o.needs + "`."
		}
		if s := o.state(); s != "" {
			text += " **" + s + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(o.flags()), code(o.variables()), code([]string{o.def}), strings.ReplaceAll(text, "|", `\|`))
	}
	b.WriteString(`
` + "`--help` (`-h`) and `--version` (`-v`)" + ` print the help or the version and exit.

## The YAML file

` + "```yaml" + `
version: 1
metrics:
  file: /etc/dcgm-exporter/default-counters.csv
  # Or, instead of a file:
  # fields:
  #   - name: DCGM_FI_DEV_GPU_TEMP
  #     prometheusType: gauge
  #     help: GPU temperature (in C).
collection:
  interval: 30s
  watchGroups:
    - name: fast
      interval: 5s
      fields: [DCGM_FI_DEV_GPU_TEMP, DCGM_FI_DEV_POWER_*]
` + "```" + `

Version 2 has ` + "`collections`" + ` instead of ` + "`collection`" + `. The collection that includes all fields sets the interval.
Each other one is a watch group:

` + "```yaml" + `
version: 2
metrics:
  file: /etc/dcgm-exporter/default-counters.csv
  enableExporterMetrics: true
collections:
  - name: scrape
    every: 30s
    metrics: {include: ["*"]}
  - name: fast
    every: 5s
    metrics: {include: [DCGM_FI_DEV_GPU_TEMP, DCGM_FI_DEV_POWER_*]}
server:
  maxConcurrentScrapes: 40
` + "```" + `

Both versions accept ` + "`sources.dcgm.watch` and `sources.dcgm.detectBindUnbind`" + `, which have no effect, like their flags.

Only ` + "`version`" + ` is required. A watch group sets the interval of the fields that match its patterns: ` + "`*`" + ` matches any
text, ` + "`?`" + ` one character, and ` + "`[…]`" + ` one of several characters. Other fields use ` + "`collection.interval`" + `. The page is
updated at the shortest interval. NVML then reads all fields each time; DCGM samples each field at its own interval. Unknown keys,
repeated keys, a field in two groups and a group that matches no field are errors that name the line.
`)
	return b.String()
}

func code(words []string) string {
	var b strings.Builder
	for _, w := range words {
		if w == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString("`" + w + "`")
	}
	return b.String()
}

func TestHelpFitsOneLine(t *testing.T) {
	ids := map[string]bool{}
	for _, o := range table() {
		ids[o.id()] = true
		if len(o.help) > 90 {
			t.Errorf("help of %s has %d characters, want at most 90", o.id(), len(o.help))
		}
	}
	for id := range details {
		if !ids[id] {
			t.Errorf("details contains %q, which is not a setting", id)
		}
	}
}
