package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// helmValueFlags are the flags of helm install, upgrade and template with a value; the short form beside the long.
var helmValueFlags = map[string]string{
	"--namespace": "-n", "--version": "", "--values": "-f", "--set": "", "--set-string": "", "--set-file": "", "--set-json": "",
	"--set-literal": "", "--timeout": "", "--repo": "", "--description": "", "--kube-context": "", "--kubeconfig": "",
	"--post-renderer": "", "--post-renderer-args": "", "--name-template": "", "--username": "", "--password": "", "--ca-file": "",
	"--cert-file": "", "--key-file": "", "--keyring": "", "--output": "-o", "--labels": "-l", "--history-max": "",
	"--registry-config": "", "--repository-cache": "", "--repository-config": "", "--burst-limit": "", "--qps": "",
	"--kube-apiserver": "", "--kube-as-user": "", "--kube-as-group": "", "--kube-ca-file": "", "--kube-tls-server-name": "",
	"--kube-token": "", "--api-versions": "-a", "--kube-version": "", "--output-dir": "", "--show-only": "-s",
	"--color": "", "--colour": "", "--content-cache": "",
}

var helmBoolFlags = map[string]string{
	"--wait": "", "--wait-for-jobs": "", "--create-namespace": "", "--atomic": "", "--devel": "", "--debug": "", "--dry-run": "",
	"--force": "", "--no-hooks": "", "--install": "-i", "--reset-values": "", "--reuse-values": "", "--reset-then-reuse-values": "",
	"--skip-crds": "", "--dependency-update": "", "--disable-openapi-validation": "", "--generate-name": "-g", "--hide-notes": "",
	"--hide-secret": "", "--insecure-skip-tls-verify": "", "--kube-insecure-skip-tls-verify": "", "--pass-credentials": "",
	"--plain-http": "", "--render-subchart-notes": "", "--replace": "", "--skip-schema-validation": "", "--take-ownership": "",
	"--verify": "", "--enable-dns": "", "--cleanup-on-fail": "", "--rollback-on-failure": "", "--server-side": "",
	"--force-conflicts": "", "--force-replace": "", "--help": "-h", "--include-crds": "", "--validate": "", "--is-upgrade": "",
	"--skip-tests": "", "--cleanup-on-failure": "", "--release-name": "", "--recreate-pods": "",
}

// A helmCommand is a helm install, upgrade or template as it is understood.
type helmCommand struct {
	input.Command
	verb       string
	positional []input.Word
	flags      []*flagUse
	blanks     []input.Word
	// opaque are words that may be any arguments: $HELM_OPTIONS.
	opaque []input.Word
	// missing are flags that the command needs and does not have.
	missing []string
	// local is the chart in a folder that the command installs; nil for others.
	local *localChart
	// lifted says that the command names another release than the one that it is to be judged for.
	lifted bool
}

// A flagUse is one flag of a command with its value.
type flagUse struct {
	name     string
	value    input.Word
	hasValue bool
	// words are the flag as it is written, and written its name there; rewritten is the value that it should have.
	words     []input.Word
	written   string
	rewritten string
	settings  []*model.Setting
	// opaque says that the settings could not be read, so that the flag stays as it is.
	opaque bool
	drop   bool
}

// longFlag reads the long name of a flag, and its value where that is joined to it: --set=a=b, -fvalues.yaml.
func longFlag(text string, values, bools map[string]string) (name, value string, joined bool) {
	name, value, joined = strings.Cut(text, "=")
	if long := cmp.Or(longName(name, values), longName(name, bools)); long != "" {
		return long, value, joined
	}
	if len(name) > 2 && name[1] != '-' && !joined {
		if long := longName(name[:2], values); long != "" {
			return long, name[2:], true
		}
	}
	return name, value, joined
}

// longName is the long name of a short flag, or "".
func longName(short string, table map[string]string) string {
	for long, s := range table {
		if s == short && s != "" {
			return long
		}
	}
	return ""
}

// readFlags sorts the words behind the program. The tables have flags with a value, and others, each with its short form.
func readFlags(c input.Command, values, bools map[string]string) *helmCommand {
	h := &helmCommand{Command: c}
	words := c.Words[1:]
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w.Splits {
			h.opaque = append(h.opaque, w)
			continue
		}
		trimmed := strings.TrimSpace(w.Value)
		if !w.Dynamic && trimmed != w.Value && strings.Contains(w.Raw, `\`) {
			h.blanks = append(h.blanks, w)
			if trimmed == "" {
				continue
			}
			w.Value = trimmed
		}
		text := w.Value
		if !strings.HasPrefix(text, "-") || text == "-" {
			h.positional = append(h.positional, w)
			continue
		}
		name, value, joined := longFlag(text, values, bools)
		use := &flagUse{words: []input.Word{w}, written: name, name: name, value: input.Word{Value: value, Raw: input.Quote(value), Line: w.Line, Col: w.Col, Dynamic: w.Dynamic, Perhaps: w.Perhaps, Placeholder: w.Placeholder}, hasValue: joined}
		if _, takesValue := values[name]; takesValue && !joined && i+1 < len(words) {
			i++
			use.value, use.hasValue = words[i], true
			use.words = append(use.words, words[i])
		}
		h.flags = append(h.flags, use)
	}
	return h
}

// flag returns the last use of the flag, or nil.
func (h *helmCommand) flag(name string) *flagUse {
	all := h.all(name)
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// all are the uses of a flag.
func (h *helmCommand) all(name string) (out []*flagUse) {
	for _, f := range h.flags {
		if f.name == name {
			out = append(out, f)
		}
	}
	return out
}

// chartName is the name at the end of a chart reference: nvidia/gpu-operator, an OCI address, a packaged chart.
func (h *helmCommand) chartName() (w input.Word, name string, ok bool) {
	if len(h.positional) == 0 {
		return input.Word{}, "", false
	}
	w = h.positional[min(1, len(h.positional)-1)]
	if w.Dynamic && h.positional[0].Value == model.OperatorNamespace {
		return w, model.OperatorNamespace, true // a release of this name
	}
	return w, input.ChartOf(w.Value), true
}

// helm judges a helm command; ok is false when it is not one that this package knows.
func (r *run) helm(s *input.Script, c input.Command) {
	h := readFlags(c, helmValueFlags, helmBoolFlags)
	if len(h.positional) == 0 {
		return
	}
	at := h.positional[0]
	h.positional = h.positional[1:]
	verbs := []string{"install", "upgrade", "template", "repo", "uninstall", "list", "status", "get", "show", "pull", "search", "rollback", "history", "test", "lint", "version"}
	verb := at.Value
	if !slices.Contains(verbs, verb) {
		if near := report.Nearest(verb, verbs); near != "" {
			r.at(at, "unknown-command", report.Failed, "helm "+verb, "helm has no such command", "write helm "+near, model.SourceHelm)
			r.replace(at, near)
			verb = near
		}
	}
	switch verb {
	case "repo":
		r.kinds = append(r.kinds, "helm repo")
		r.helmRepo(h.positional)
		return
	case "install", "upgrade", "template":
	default:
		return
	}
	h.verb = verb
	r.helmFlags(h)
	chartWord, name, ok := h.chartName()
	if !ok && len(h.opaque) > 0 {
		return // what is not known may name it
	}
	if !ok {
		r.at(at, "helm-arguments", report.Failed, "helm "+verb, "the command names no chart", "write helm "+verb+" gpu-operator nvidia/gpu-operator", model.SourceHelm)
		return
	}
	known := []string{"gpu-operator", "nvidia-device-plugin"}
	if !chartWord.Dynamic && !strings.Contains(chartWord.Value, ":") {
		h.local = r.operatorIn(r.name, chartWord.Value)
	}
	if h.local != nil {
		name = known[0]
	}
	if !slices.Contains(known, name) {
		near := slipFor(name, known...)
		if near == "" {
			r.kinds = append(r.kinds, "helm "+verb+" "+name)
			return
		}
		r.at(chartWord, "unknown-chart", report.Failed, chartWord.Value, "there is no chart of this name", "write "+strings.TrimSuffix(chartWord.Value, name)+near, model.SourceHelm)
		fixed := strings.TrimSuffix(chartWord.Value, name) + near
		h.positional[min(1, len(h.positional)-1)].Value = fixed
		r.replace(chartWord, fixed)
		name = near
	}
	if name == "nvidia-device-plugin" {
		r.pluginChart(s, h)
		return
	}
	r.operatorChart(s, h)
}

// helmRepo judges helm repo add.
func (r *run) helmRepo(words []input.Word) {
	const current = "https://helm.ngc.nvidia.com/nvidia"
	for _, w := range words {
		if strings.Contains(w.Value, "nvidia") {
			r.judged++
		}
		if address := strings.TrimSuffix(w.Value, "/"); address == "https://nvidia.github.io/gpu-operator" {
			r.at(w, "stale-repository", report.Warning, w.Value, "the old repository of the chart; new releases are not published there", "write "+current, sourceDocs)
			r.replace(w, current)
		}
	}
}

// helmFlags judges escaped spaces, unknown flags and the number of arguments.
func (r *run) helmFlags(h *helmCommand) {
	if len(h.blanks) > 0 {
		times := ""
		if len(h.blanks) > 1 {
			times = fmt.Sprintf(" (%d times)", len(h.blanks))
		}
		for _, w := range h.blanks {
			if w.Start >= 0 {
				text := strings.TrimPrefix(strings.ReplaceAll(w.Raw, `\ `, " \\\n  "), " ")
				r.correct(w.Start, w.Start+len(w.Raw), text)
			}
		}
		r.at(h.blanks[0], "escaped-space", report.Failed, `\ `,
			fmt.Sprintf(`"\ " is an escaped space, not a line continuation: helm gets " " as an argument%s`, times),
			`break the line right after each \, or delete the \`, input.SourceShell)
	}
	for _, w := range h.opaque {
		r.at(w, "not-judged", report.Note, w.Raw, "what it holds is not known here, so it is not judged", "", "")
	}
	for _, f := range h.flags {
		_, takesValue := helmValueFlags[f.name]
		_, isBool := helmBoolFlags[f.name]
		if takesValue && !f.hasValue {
			r.at(f.value, "helm-arguments", report.Failed, f.name, "the flag has no value", "", model.SourceHelm)
			f.drop = true
			continue
		}
		if takesValue || isBool || f.value.Dynamic {
			continue
		}
		fix, wrong := "see helm "+h.verb+" --help", f.name
		if near := report.Nearest(f.name, append(slices.Sorted(maps.Keys(helmValueFlags)), slices.Sorted(maps.Keys(helmBoolFlags))...)); near != "" {
			fix, f.name = "write "+near, near
		}
		r.at(f.value, "unknown-flag", report.Failed, wrong, "helm "+h.verb+" has no such flag and refuses the command", fix, model.SourceHelm)
	}
	if want := 2; len(h.positional) > want {
		r.at(h.positional[want], "helm-arguments", report.Failed, h.positional[want].Value,
			fmt.Sprintf("helm %s takes a name and a chart, found %d arguments", h.verb, len(h.positional)), "delete the rest, or put it after --set", model.SourceHelm)
	}
}

// namespace judges the name that is given as the operator's namespace and returns the right one.
func (r *run) namespace(w input.Word, subject string) string {
	if w.Dynamic || w.Value == model.OperatorNamespace || len(w.Value) < 6 {
		return w.Value
	}
	if strings.HasPrefix(w.Value, model.OperatorNamespace+"-") || strings.HasSuffix(w.Value, "-"+model.OperatorNamespace) || slipFor(w.Value, model.OperatorNamespace) == "" {
		return w.Value
	}
	r.at(w, "namespace", report.Failed, subject, fmt.Sprintf("%q looks like a slip for %s: everything else that names the namespace misses it", w.Value, model.OperatorNamespace), "write "+model.OperatorNamespace, sourceDocs)
	return model.OperatorNamespace
}

// operatorChart judges an installation of the gpu-operator chart.
func (r *run) operatorChart(s *input.Script, h *helmCommand) {
	if f := h.flag("--namespace"); f != nil {
		if right := r.namespace(f.value, "-n "+f.value.Value); right != f.value.Value {
			f.value.Value, f.rewritten = right, right
		}
	} else if h.verb != "template" && !h.Namespaced {
		r.at(h.Words[0], "namespace", report.Warning, "helm "+h.verb, "without -n the operator lands in whatever namespace the context has", "add --namespace "+model.OperatorNamespace+" --create-namespace", sourceDocs)
		h.missing = append(h.missing, "--namespace "+model.OperatorNamespace+" --create-namespace")
	}
	r.reusedValues(h)
	v, assumed := r.commandVersion(h)
	in := newInstallation(r.table, v, nil)
	in.flags, in.opaque, in.lifted, in.assumed = true, len(h.opaque) > 0, h.lifted, assumed
	if h.local != nil && h.local.below != "" {
		if data, file, err := r.beside(r.name, path.Join(h.positional[min(1, len(h.positional)-1)].Value, "values.yaml")); err == nil {
			r.valuesText(in, file, "", data, 0)
		}
	}
	for _, f := range h.flags {
		switch f.name {
		case "--values":
			r.valuesFlag(s, h, in, f)
		case "--set", "--set-string", "--set-json", "--set-literal", "--set-file":
			r.setFlag(s, in, f)
			for _, st := range f.settings {
				st.Perhaps = f.value.Perhaps
			}
		}
	}
	r.kinds = append(r.kinds, fmt.Sprintf("helm %s of gpu-operator %s", h.verb, in.Version))
	if h.local != nil && h.local.below != "" {
		in.Settings = ofDependency(in.Settings, h.local.below)
		r.installation(in)
		return
	}
	r.installation(in)
	r.fixInstallation(h, in)
}

// reusedValues reports an upgrade that keeps the old release's values without the new chart's defaults.
func (r *run) reusedValues(h *helmCommand) {
	f := h.flag("--reuse-values")
	if f == nil {
		return
	}
	reason := "keeps the values of the installed release without the new chart's defaults: where the chart has new groups of keys its templates end in a nil pointer"
	if h.flag("--version") == nil {
		reason = "without --version the newest chart is taken, and this keeps the old values without its defaults: its templates end in a nil pointer"
		if r.version == (chart.Version{}) {
			h.missing = append(h.missing, "--version "+r.table.Latest().String())
		}
	}
	r.at(f.value, "reuse-values", report.Warning, "--reuse-values", reason, "write --reset-then-reuse-values, and --version", model.SourceHelm)
	f.name = "--reset-then-reuse-values"
}

// commandVersion is the release that the command installs, or that the user wants it judged for. It is assumed where the
// command takes it from elsewhere.
func (r *run) commandVersion(h *helmCommand) (v chart.Version, assumed bool) {
	f := h.flag("--version")
	if f == nil {
		f = &flagUse{value: h.Words[0]}
		if h.local != nil && r.version == (chart.Version{}) {
			v, _ = r.ofChart(h.local)
			return v, false
		}
		if r.version != (chart.Version{}) && h.local == nil {
			h.missing = append(h.missing, "--version "+r.version.String())
		}
		if w, _, ok := h.chartName(); ok {
			f.value.Value = ""
			if m := packagedVersion.FindStringSubmatch(w.Value); m != nil {
				f.value.Value = m[1]
			}
		}
	}
	requested := f.value.Value
	if r.version != (chart.Version{}) {
		if requested != r.version.String() {
			h.lifted = requested != "" && !f.value.Dynamic
			f.rewritten = r.version.String()
		}
		return r.version, false
	}
	v, err := r.resolve(f.value, f.value.Dynamic, "--version "+requested)
	if err != nil {
		r.at(f.value, "chart-version", report.Failed, "--version "+requested, err.Error(), "write --version "+v.String(), sourceValues)
		f.rewritten = v.String()
	}
	return v, f.value.Dynamic
}

var packagedVersion = regexp.MustCompile(`-(v?[0-9][0-9A-Za-z.+-]*)\.tgz$`)

// resolve finds the release that a word of an input names, and notes there as which one it is judged otherwise. With
// an error, for a word that names none, the newest stands in for it. A subject names a range.
func (r *run) resolve(at input.Word, unknown bool, subject string) (chart.Version, error) {
	v, exact, err := r.table.Resolve(at.Value)
	newest, isRange := r.table.Newest(at.Value)
	switch {
	case unknown:
		v, err = r.table.Latest(), nil
		r.at(at, "not-judged", report.Note, subject, "which release this is is not known here; judged as "+v.String(), "name it with gpuop's --version", "")
	case err != nil && isRange && subject != "":
		v, err = newest, nil
		r.at(at, "not-judged", report.Note, subject, "a range of releases; judged as "+v.String()+", the newest of it that gpuop knows", "name a release", "")
	case err != nil:
		v = r.table.Latest()
	case !exact:
		reason := fmt.Sprintf("not in gpuop's table; judged as %s", v)
		if r.table.Newer(at.Value) {
			r.newer = true
			reason = fmt.Sprintf("newer than every release that gpuop knows; judged as %s, and keys that it does not have are notes", v)
		}
		r.at(at, "chart-version", report.Note, at.Value, reason, "teach gpuop the release: --chart", sourceValues)
	}
	return v, err
}

// valuesFlag adds the settings of a -f file, when it can be read.
func (r *run) valuesFlag(s *input.Script, h *helmCommand, in *installation, f *flagUse) {
	for name := range strings.SplitSeq(f.value.Value, ",") {
		from := s.Files[name]
		if name == "-" && h.Stdin != nil {
			from = h.Stdin
		}
		if from == nil || f.value.Dynamic {
			if data, ok := r.open(s, f.value, name); ok {
				r.valuesText(in, name, "", data, 0)
			}
			continue
		}
		from.Judged = true
		for _, st := range r.valuesText(in, r.name, "", []byte(from.Text), from.Line) {
			st.From = from
		}
	}
}

// open reads a file that a word of the script names: one that the script itself writes, or one beside it. A file that is
// not here is a note.
func (r *run) open(s *input.Script, w input.Word, name string) (data []byte, ok bool) {
	if d := s.Files[name]; d != nil && !w.Dynamic {
		return []byte(d.Text), true
	}
	err := errNotRead
	if r.read != nil && !w.Dynamic {
		data, err = r.read(r.name, name)
	}
	if err != nil {
		r.at(w, "file-not-read", report.Note, name, "the file is not here, so it is not judged", "run gpuop lint where the file is", "")
		return nil, false
	}
	r.learn(string(data))
	return data, true
}

// setFlag adds the settings of a --set flag or one of its kin.
func (r *run) setFlag(s *input.Script, in *installation, f *flagUse) {
	if f.value.Dynamic {
		if f.value.Placeholder == "" {
			r.at(f.value, "not-judged", report.Note, f.name+" "+f.value.Value, "the value is not known here, so it is not judged", "", "")
		}
		if key, _, found := strings.Cut(f.value.Value, "="); found && key != "" && !strings.ContainsAny(key, "$`,[<") {
			st := &model.Setting{Setting: chart.Set(key, nil, ""), Unknown: true, Line: f.value.Line, Column: f.value.Col, File: r.name, Source: f.value.Raw}
			f.settings = append(f.settings, st)
			in.Settings = append(in.Settings, st)
			return
		}
		f.opaque = true
		return
	}
	switch f.name {
	case "--set-json":
		r.setJSON(in, f)
		return
	case "--set-literal":
		if key, value, found := strings.Cut(f.value.Value, "="); found && key != "" {
			f.settings = []*model.Setting{{Setting: chart.Set(key, value, ""), Line: f.value.Line, Column: f.value.Col, File: r.name, Source: f.value.Value}}
			in.Settings = append(in.Settings, f.settings...)
		}
		return
	}
	assignments, err := model.Assignments(f.value.Value, f.name == "--set")
	if err != nil {
		fix := ""
		if at := strings.LastIndex(f.value.Value, ","); at >= 0 && !strings.Contains(f.value.Value[at:], "=") {
			fix = "write " + f.value.Value[:at] + `\,` + f.value.Value[at+1:] + ", if the comma is part of the value"
		}
		r.at(f.value, "set-syntax", report.Failed, f.name+" "+f.value.Value, err.Error(), fix, model.SourceHelm)
		f.opaque = true
	}
	for _, a := range assignments {
		st := &model.Setting{Setting: chart.Setting{Path: a.Path, Value: a.Value}, Element: a.Element, Line: f.value.Line, Column: f.value.Col, File: r.name, Source: a.Text,
			Typed: f.name == "--set"}
		if f.name == "--set-file" {
			r.setFile(s, f.value, st, in.route)
		}
		f.settings = append(f.settings, st)
		in.Settings = append(in.Settings, st)
	}
}

// setFile judges the file of --set-file when it is a config of the device plugin or MIG manager.
func (r *run) setFile(s *input.Script, w input.Word, st *model.Setting, route sharing.Route) {
	name := st.Text()
	data, ok := r.open(s, w, name)
	if st.Unknown = !ok; !ok {
		return
	}
	st.Value = string(data)
	if d := s.Files[name]; d != nil {
		d.Route = route
	} else {
		r.parse(text{name: name, data: data, route: route})
	}
}

// setJSON reads --set-json key=JSON, or one JSON object.
func (r *run) setJSON(in *installation, f *flagUse) {
	key, text, found := strings.Cut(f.value.Value, "=")
	if strings.HasPrefix(strings.TrimSpace(f.value.Value), "{") {
		key, text, found = "", f.value.Value, true
	}
	var node yaml.Node
	if !found || !json.Valid([]byte(text)) || yaml.Unmarshal([]byte(text), &node) != nil || len(node.Content) == 0 {
		r.at(f.value, "set-syntax", report.Failed, "--set-json "+key, "the value is not JSON", "", model.SourceHelm)
		return
	}
	f.settings = model.Flatten(&fields.Reader{}, r.name, 0, chart.ParsePath(key), node.Content[0])
	for _, st := range f.settings {
		st.Line, st.Column, st.Node, st.Source = f.value.Line, f.value.Col, nil, f.value.Value
	}
	in.Settings = append(in.Settings, f.settings...)
}
