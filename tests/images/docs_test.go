//go:build images

package images

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"mvdan.cc/sh/v3/shell"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// published is the name of the images in the docs, with the version of the latest release.
func published(t *testing.T) string {
	t.Helper()
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) / `).FindSubmatch(changelog)
	if m == nil {
		t.Fatal("CHANGELOG.md has no release")
	}
	return "ghcr.io/gpu-telemetry/dcgm-exporter:v" + string(m[1])
}

// blocks returns the fenced blocks of docs/containers.md in a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "containers.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllSubmatch(text, -1) {
		all = append(all, string(m[1]))
	}
	return all
}

// A form is a command line of the docs, taken apart.
type form struct {
	options []string // of podman run, but for name, ports, restarts and devices
	image   string   // the end of its tag
	args    []string // of the exporter
	cdi     bool     // it requests devices by CDI
}

func forms(t *testing.T) []form {
	t.Helper()
	var all []form
	for _, b := range blocks(t, "sh") {
		for line := range strings.Lines(b) {
			words, err := shell.Fields(line, nil)
			if err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			if len(words) < 2 || words[0] != "docker" && words[0] != "podman" || words[1] != "run" {
				continue
			}
			var f form
			for words = words[2:]; len(words) > 0 && f.image == ""; {
				switch w := words[0]; {
				case w == "-d" || w == "--read-only":
					f.options, words = append(f.options, w), words[1:]
				case slices.Contains([]string{"--name", "--restart", "-p", "--gpus"}, w):
					words = words[2:]
				case w == "--device":
					f.cdi = words[1] == "nvidia.com/gpu=all"
					f.options, words = append(f.options, w, words[1]), words[2:]
				case strings.HasPrefix(w, "-"):
					f.options, words = append(f.options, w, words[1]), words[2:]
				default:
					suffix, ours := strings.CutPrefix(w, published(t))
					if !ours {
						t.Fatalf("%s is no image of the latest release %s", w, published(t))
					}
					f.image, words = tag+suffix, words[1:]
				}
			}
			f.args = words
			all = append(all, f)
		}
	}
	return all
}

// Every command line of docs/containers.md runs, over a simulated node, and its own arguments are
// the exporter's.
func TestDocumentedCommandsRun(t *testing.T) {
	all := forms(t)
	if len(all) < 6 {
		t.Fatalf("%d command lines", len(all))
	}
	for i, f := range all {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			options := slices.DeleteFunc(slices.Clone(f.options), func(o string) bool { return o == "-d" })
			if at := slices.Index(options, "--device"); at >= 0 {
				options = slices.Delete(options, at, at+2) // TestCDI
			}
			for i, o := range options {
				if strings.HasPrefix(o, "/etc/dcgm-exporter:") { // the host's counters files
					folder, err := filepath.Abs(filepath.Join(root, "etc"))
					if err != nil {
						t.Fatal(err)
					}
					options[i] = folder + strings.TrimPrefix(o, "/etc/dcgm-exporter")
				}
			}
			args := append(slices.Clone(f.args), "--source=sim", "-c", "500")
			c := start(t, append(append(options, name+":"+f.image), args...)...)
			c.page(t, "DCGM_FI_DEV_GPU_TEMP{", "dcgm_exporter_collect_success 1")
		})
	}
}

// The forms for CDI reach a driver: podman reads a specification that puts the test library for
// NVML where nvidia-ctk's puts the driver's.
func TestCDI(t *testing.T) {
	const at = "/var/run/cdi/nvidia.yaml"
	if _, err := os.Stat(at); err == nil {
		material.Skip(t, "cdi-in-use", fmt.Errorf("%s is there", at))
	}
	type mount struct {
		HostPath      string   `json:"hostPath"`
		ContainerPath string   `json:"containerPath"`
		Options       []string `json:"options"`
	}
	var edits struct {
		Env    []string `json:"env"`
		Mounts []mount  `json:"mounts"`
	}
	options := driver(t)
	for i := 0; i < len(options); i += 2 {
		if options[i] == "-e" {
			edits.Env = append(edits.Env, options[i+1])
			continue
		}
		parts := strings.Split(options[i+1], ":")
		edits.Mounts = append(edits.Mounts, mount{parts[0], parts[1], []string{"rw", "nosuid", "bind"}})
	}
	spec, err := json.Marshal(map[string]any{
		"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu",
		"devices": []any{map[string]any{"name": "all", "containerEdits": edits}},
	})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(at), 0o755)
	}
	if err == nil {
		err = os.WriteFile(at, spec, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(at) })
	tried := 0
	for _, f := range forms(t) {
		if !f.cdi {
			continue
		}
		tried++
		options := slices.DeleteFunc(slices.Clone(f.options), func(o string) bool { return o == "-d" })
		c := start(t, append(append(options, name+":"+f.image, "-c", "500"), f.args...)...)
		page := c.page(t, `DCGM_FI_DEV_GPU_TEMP{gpu="0"`)
		if !strings.Contains(grep(page, "dcgm_exporter_source_info"), `source="nvml"`) {
			t.Errorf("the source is %s", grep(page, "dcgm_exporter_source_info"))
		}
	}
	if tried < 2 {
		t.Errorf("%d forms for CDI", tried)
	}
}

// The keys of podman-systemd.unit(5), section Container, that the quadlet may use;
// https://docs.podman.io/en/v5.6.2/markdown/podman-systemd.unit.5.html.
var quadletKeys = []string{
	"AddCapability", "AddDevice", "ContainerName", "DropCapability", "Environment", "EnvironmentFile", "Exec", "Group", "Image",
	"NoNewPrivileges", "PublishPort", "ReadOnly", "SecurityLabelDisable", "User", "Volume",
}

func TestQuadlet(t *testing.T) {
	for _, b := range blocks(t, "ini") {
		options, err := unit.Deserialize(strings.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, o := range options {
			got[o.Section+"."+o.Name] = o.Value
			if o.Section == "Container" && !slices.Contains(quadletKeys, o.Name) {
				t.Errorf("%s is no key of a quadlet", o.Name)
			}
		}
		for key, want := range map[string]string{
			"Container.Image": published(t), "Container.AddDevice": "nvidia.com/gpu=all", "Container.PublishPort": "9400:9400",
			"Container.ReadOnly": "true", "Container.DropCapability": "ALL", "Container.User": "1000",
		} {
			if got[key] != want {
				t.Errorf("%s is %q, want %q", key, got[key], want)
			}
		}
		// systemd takes the sections that are its own.
		own := regexp.MustCompile(`(?s)\[Container\].*?\n\n`).ReplaceAllString(b, "") + "\n[Service]\nExecStart=/bin/true\n"
		path := filepath.Join(t.TempDir(), "quadlet.service")
		if err := os.WriteFile(path, []byte(own), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := exec.LookPath("systemd-analyze"); err != nil {
			material.Skip(t, "systemd-analyze-absent", err)
		}
		if out, err := exec.Command("systemd-analyze", "verify", path).CombinedOutput(); err != nil || strings.Contains(string(out), "quadlet.service:") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if n := len(blocks(t, "ini")); n != 1 {
		t.Errorf("%d quadlets", n)
	}
}

// The Compose file is what Compose's own schema allows, and what it says of the exporter runs.
func TestCompose(t *testing.T) {
	found := blocks(t, "yaml")
	if len(found) != 1 {
		t.Fatalf("%d blocks", len(found))
	}
	text, err := yaml.YAMLToJSONStrict([]byte(found[0]))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image, User string
			Command     []string
			ReadOnly    bool     `json:"read_only"`
			CapDrop     []string `json:"cap_drop"`
			SecurityOpt []string `json:"security_opt"`
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	s := file.Services["dcgm-exporter"]
	if s.Image != published(t) || !s.ReadOnly {
		t.Errorf("%+v", s)
	}
	if _, err := config.Parse(s.Command, func(string) (string, bool) { return "", false }, os.ReadFile); err != nil {
		t.Error(err)
	}
	options := []string{"--read-only", "--user", s.User}
	for _, c := range s.CapDrop {
		options = append(options, "--cap-drop", c)
	}
	for _, o := range s.SecurityOpt {
		options = append(options, "--security-opt", o)
	}
	c := start(t, append(append(options, name+":"+tag, "--source=sim", "-c", "500"), s.Command...)...)
	c.page(t, "DCGM_FI_DEV_GPU_TEMP{")

	var module struct{ Dir, Error string }
	download := exec.Command("go", "mod", "download", "-json", "github.com/compose-spec/compose-go/v2@v2.16.2")
	download.Dir = t.TempDir()
	out, err := download.Output()
	if json.Unmarshal(out, &module) != nil || module.Dir == "" {
		material.Skip(t, "compose-schema-absent", fmt.Errorf("%w %s", err, module.Error))
	}
	schema, err := os.ReadFile(filepath.Join(module.Dir, "schema", "compose-spec.json"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("compose.json", parsed); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("compose.json")
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = compiled.Validate(document)
	}
	if err != nil {
		t.Error(err)
	}
	wrong, _ := jsonschema.UnmarshalJSON(bytes.NewReader(bytes.Replace(text, []byte(`"read_only"`), []byte(`"readonly"`), 1)))
	if compiled.Validate(wrong) == nil {
		t.Error("the schema passes a key that Compose does not have")
	}
}
