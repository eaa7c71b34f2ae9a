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
		t.Errorf("docs/flags.md is not what the table says: run go test ./internal/config -run ^TestFlagsPage$ -update (-want +got):\n%s", diff)
	}
}

// markdown returns docs/flags.md.
func markdown() string {
	var b strings.Builder
	b.WriteString(`# Flags, variables and the YAML file

<!-- Generated from internal/config/table.go by "go test ./internal/config -run TestFlagsPage -update". -->

Every setting of the exporter, from one table in the code. A flag wins over its variable, the variable over the YAML
file, the file over the default. An empty variable counts as not set.

Flags take one dash or two, and their value behind a blank or an equals sign: ` + "`-f x`, `--collectors x` and `--collectors=x`" + `
are the same. A switch stands alone or takes its value behind an equals sign: ` + "`--kubernetes`, `--kubernetes=false`" + `.
Of a flag that is repeated the last one counts; lists grow. Unknown flags and values of the wrong form end the program at
start, with a message that names them.

What NVIDIA's exporter takes is never refused. The log warns, and goes on:

| given | counts |
|---|---|
| ` + "`--collectors` beside `--configmap-data`" + ` | the ConfigMap; ` + "`none`" + ` names none |
| ` + "`--address` beside `--web-systemd-socket`" + ` | the sockets of systemd |
| ` + "`--hostname-label` beside `--no-hostname`" + ` | no label |
| ` + "`--remote-hostengine-info` beside `--source=nvml` or `sim`" + ` | the source |
| a bad value of a setting that has no effect, or whose switch is off | the default |
| an empty flag, or a number that makes no sense (` + "`-c 0`, `--web-max-requests=-1`" + `) | the default |
| a window of 0 or less (` + "`-x 0`" + `) | 0: nothing is counted |
| an expression that does not compile in an allow list | the others; where there are none, as without a list |
| ` + "`--kubernetes true`, `-k false`" + ` | as with an equals sign |
| ` + "`--enable-pprof` or `--web-enable-lifecycle`" + ` without authentication and not on loopback | their routes are refused to every caller (403) |
| pod labels, pod UIDs or DRA without ` + "`NODE_NAME`" + ` | pods go without; ` + "`dcgm_exporter_kubernetes_api_success`" + ` is 0 |
`)
	section := ""
	for _, o := range table() {
		if o.section != section {
			section = o.section
			fmt.Fprintf(&b, "\n## %s\n\n| flag | variable | default | what it does |\n|---|---|---|---|\n", section)
		}
		text := o.help + " " + o.expects()
		if o.key != "" {
			text += " In the YAML file: `" + o.key + "`."
		}
		if o.needs != "" {
			text += " Only with `--" + o.needs + "`."
		}
		if s := o.state(); s != "" {
			text += " **" + s + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(o.flags()), code(o.variables()), code([]string{o.def}), strings.ReplaceAll(text, "|", `\|`))
	}
	b.WriteString(`
` + "`--help` (`-h`) and `--version` (`-v`)" + ` print a text and end.

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

Version 2 says the same with ` + "`collections`" + ` in the place of ` + "`collection`" + `. The one of all fields gives the interval,
every other one is a watch group:

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

` + "`sources.dcgm.watch` and `sources.dcgm.detectBindUnbind`" + ` are read in both and have no effect, as their flags.

Every key but ` + "`version`" + ` may be left out. A watch group gives the fields that its patterns match an interval of their own
(` + "`*` stands for any text, `?` for one character, `[…]`" + ` for one of several); the other fields have ` + "`collection.interval`" + `.
Unknown and repeated keys, a field in two groups and a group that matches no field are errors that name the line.
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
