package chart

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// TestMigration follows docs/migration.md with the values of three generations of NVIDIA's chart in testdata/migration,
// on three simulated nodes. Every metric in the selected counters file must be served, unless the node's hardware lacks
// it.
func TestMigration(t *testing.T) {
	c := load(t)
	// the counters files that NVIDIA's charts would use
	for name, file := range map[string]string{
		"3.x": folder.Read(t, root, "etc/dcp-metrics-included.csv"),
		"4.5": folder.Read(t, root, "etc/default-counters.csv"),
		"4.8": "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\nDCGM_FI_PROF_DRAM_ACTIVE, gauge, Memory interface.\n",
	} {
		values := folder.Read(t, "testdata", "migration", name+".yaml")
		for _, node := range []string{"a100-mig", "h100x8", "t4"} {
			t.Run(name+" on "+node, func(t *testing.T) {
				t.Parallel()
				strict := migrated(t, mustRender(t, c, withStrict(values)), node)
				relaxed := migrated(t, mustRender(t, c, values), node)
				requests, _, err := counters.Parse(strings.NewReader(file), "counters.csv")
				if err != nil || len(requests) == 0 {
					t.Fatalf("counters file: %d counters, error %v; want at least one counter and no error",
						len(requests), err)
				}
				for _, r := range requests {
					for mode, page := range map[string]string{"strict": strict, "default": relaxed} {
						// in strict mode, the XID metric has no series before the first XID
						isFirstXID := mode == "strict" && r.Name == "DCGM_FI_DEV_XID_ERRORS"
						if !isServed(page, &r) && !isFirstXID && !isLacking(relaxed, r.Name) {
							t.Errorf("%s page lacks %s, and dcgm_exporter_field_unavailable does not say why", mode,
								r.Name)
						}
					}
				}
			})
		}
	}
}

// withStrict adds the environment variable of strict mode, as the second step of docs/migration.md says.
func withStrict(values string) string {
	const setting = "{name: DCGM_EXPORTER_COMPATIBILITY, value: strict}"
	if strings.Contains(values, "extraEnv: [") {
		return strings.Replace(values, "extraEnv: [", "extraEnv: ["+setting+", ", 1)
	}
	return values + "extraEnv: [" + setting + "]\n"
}

// isServed reports whether a page has series of the counter. A counter of type label is served if a series has the
// label.
func isServed(page string, r *counters.Request) bool {
	if r.Type == gpu.MetricLabel {
		return strings.Contains(page, ","+r.Name+`="`)
	}
	return strings.Contains(page, "\n"+r.Name+"{")
}

// isLacking reports whether a page says that the hardware does not support the field, or has no entity for it.
func isLacking(page, field string) bool {
	series := `dcgm_exporter_field_unavailable\{field="` + field + `",reason="(not_supported|no_entity)"\}`
	return regexp.MustCompile(series).MatchString(page)
}

// migrated returns the page that the exporter in the rendered DaemonSet serves for a simulated node. The container must
// have the default image, and the capability SYS_ADMIN for profiling metrics.
func migrated(t *testing.T, r *rendering, node string) string {
	t.Helper()
	pod := only[*apps.DaemonSet](t, r).Spec.Template.Spec
	exporter := pod.Containers[0]
	isOurs := strings.HasPrefix(exporter.Image, "ghcr.io/gpu-telemetry/dcgm-exporter:")
	if !isOurs || strings.HasSuffix(exporter.Image, "-nvml") {
		t.Errorf("image = %s, want the default image, which has DCGM", exporter.Image)
	}
	rights := exporter.SecurityContext.Capabilities
	if rights == nil || !slices.Contains(rights.Add, core.Capability("SYS_ADMIN")) {
		t.Error("container lacks SYS_ADMIN, which profiling metrics need on GPUs before Hopper")
	}
	etc := t.TempDir()
	if err := os.CopyFS(etc, os.DirFS(filepath.Join(root, "etc"))); err != nil {
		t.Fatal(err)
	}
	move := strings.NewReplacer("/etc/dcgm-exporter", etc).Replace
	for _, m := range exporter.VolumeMounts {
		mount(t, r, &pod, &m, move(m.MountPath))
	}
	env := map[string]string{}
	for _, e := range exporter.Env {
		if env[e.Name] = move(e.Value); e.ValueFrom != nil {
			env[e.Name] = "node-1"
		}
	}
	args := []string{"--source=sim", "--sim-node=" + node}
	for _, a := range exporter.Args {
		args = append(args, move(a))
	}
	var out, errs bytes.Buffer
	code := command.Run(t.Context(), "once", command.Process{
		Args: args, Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		ReadFile: os.ReadFile, In: strings.NewReader(""), Out: &out, Err: io.Writer(&errs),
	})
	if code != command.OK {
		t.Fatalf("once %q: exit code %d\n%s", args, code, errs.String())
	}
	return out.String()
}

// mount writes the files of a ConfigMap volume to path. It ignores other volumes, and mounts outside
// /etc/dcgm-exporter.
func mount(t *testing.T, r *rendering, pod *core.PodSpec, m *core.VolumeMount, path string) {
	t.Helper()
	i := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name })
	if i < 0 {
		t.Fatalf("no volume %s", m.Name)
	}
	source := pod.Volumes[i].ConfigMap
	if source == nil || path == m.MountPath {
		return
	}
	for _, object := range every[*core.ConfigMap](t, r) {
		for _, item := range source.Items {
			if object.Name != source.Name {
				continue
			}
			file := path
			if m.SubPath == "" {
				file = filepath.Join(path, item.Path)
			}
			folder.Write(t, file, object.Data[item.Key])
		}
	}
}
