package lint

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
	words "github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// helmRepo records the repositories that a command adds, and reports the chart's old repository.
func (s *script) helmRepo(words []input.Word) {
	const current = "https://helm.ngc.nvidia.com/nvidia"
	judged := false
	if len(words) > 2 && words[0].Value == "add" {
		s.repositories[words[1].Value] = words[2].Value
	}
	for _, w := range words {
		judged = judged || strings.Contains(w.Value, "nvidia")
		if strings.TrimSuffix(w.Value, "/") == "https://nvidia.github.io/gpu-operator" {
			s.addAt(w, staleRepository, w.Value,
				"old chart repository; new releases are not published there", "write "+current)
			s.replace(w, current)
		}
	}
	s.unit(s.file, "helm repo", judged)
}

func (s *script) helmInstall(h *call) {
	for i, w := range h.blanks {
		if i == 0 {
			s.addAt(w, escapedSpace, `\ `,
				`"\ " is an escaped space, not a line continuation: helm gets " " as an argument`,
				`break the line right after each \, or delete the \`)
		}
		if w.Start >= 0 {
			text := strings.ReplaceAll(w.Raw, `\ `, " \\\n  ")
			s.correct(w.Start, w.Start+len(w.Raw), strings.TrimPrefix(text, " "))
		}
	}
	for _, w := range h.opaque {
		s.notJudged(w, w.Raw)
	}
	if len(h.positional) == 0 {
		return
	}
	const right = model.OperatorNamespace
	w := h.positional[min(1, len(h.positional)-1)]
	name, _ := input.ChartOf(w.Value)
	if w.Dynamic && h.positional[0].Value == right {
		name = right // the release has the chart's name
	}
	local := s.chartIn(s.file, w.Value)
	if local == nil && isSlip(name, right) {
		fixed := strings.TrimSuffix(w.Value, name) + right
		s.addAt(w, unknownChart, w.Value, "unknown chart", "write "+fixed)
		s.replace(w, fixed)
		w.Value, name = fixed, right
	}
	alias, _, _ := strings.Cut(w.Value, "/")
	references := []string{cmp.Or(s.repositories[alias], w.Value)}
	if f := h.flag("--repo"); f != nil {
		references = append(references, f.value.Value)
	}
	switch {
	case local == nil:
		name = cmp.Or(operatorOf(references...), name)
	case local.own:
		name = right
	default:
		name = w.Value
	}
	if name != right {
		s.unit(s.file, "helm "+h.verb+" of "+name+", not checked", false)
		return
	}
	s.operatorChart(h, w, local)
}

// isSlip reports whether name looks like a misspelling of known. npu-operator is not a typo of gpu-operator.
func isSlip(name, known string) bool {
	first, rest, _ := strings.Cut(name, "-")
	want, wantRest, _ := strings.Cut(known, "-")
	isOther := rest == wantRest && (len(first) == len(want) || words.Distance(first, want, 1) > 1)
	return name != known && words.Distance(name, known, 2) <= 2 && !isOther
}

// localPath matches a chart reference that is a local path.
var localPath = regexp.MustCompile(`^[./]|^[^:]*/$`)

// operatorChart checks an installation of the gpu-operator chart. local is the chart if it is in a folder.
func (s *script) operatorChart(h *call, chartWord input.Word, local *localChart) {
	s.namespaceFlag(h)
	if h.flag("--namespace") == nil && h.verb != "template" && !h.Namespaced {
		const missing = "--namespace " + model.OperatorNamespace + " --create-namespace"
		const reason = "without -n the operator is installed in the kubeconfig context's namespace"
		s.addAt(h.Words[0], namespace, "helm "+h.verb, reason, "add "+missing).Severity = check.Warning
		s.correct(h.End, h.End, " "+missing)
	}
	if f := h.flag("--reuse-values"); f != nil {
		s.addAt(f.value, reuseValues, "--reuse-values",
			"keeps the installed values without the new chart's defaults: new groups of keys are missing, "+
				"and templates can fail with a nil pointer",
			"write --reset-then-reuse-values, and --version")
		s.replace(f.words[0], "--reset-then-reuse-values")
		if h.flag("--version") == nil && !s.named {
			s.correct(h.End, h.End, " --version "+s.table.Latest().String())
		}
	}
	in := newInstallation(s.table, s.version, nil)
	in.flags, in.moreFlags = true, len(h.opaque) > 0
	in.unreadChart = local == nil && localPath.MatchString(chartWord.Value)
	s.commandVersion(in, h, chartWord, local)
	for _, f := range h.flags {
		if f.name == "--values" {
			s.valuesFlag(in, h, f)
		} else if strings.HasPrefix(f.name, "--set") {
			f.settings = s.settings(f)
			in.Settings = append(in.Settings, f.settings...)
		}
	}
	s.unit(s.file, fmt.Sprintf("helm %s of gpu-operator %s", h.verb, in.Version), true)
	s.installation(in, s.file)
	for _, f := range h.flags {
		s.fixFlag(in, f)
	}
}

// commandVersion sets the release to check against: the user's, that of --version, of the local chart or of the chart's
// file name, or the newest. The correction sets --version to the user's.
func (s *script) commandVersion(in *installation, h *call, chartWord input.Word, local *localChart) {
	f := h.flag("--version")
	if f == nil && local != nil {
		in.Version, in.assumed = s.resolveNode(&doc{file: local.file}, local.version, "version")
		return
	}
	if f == nil {
		f = &flagUse{value: h.Words[0]}
		_, f.value.Value = input.ChartOf(chartWord.Value)
		if s.named {
			s.correct(h.End, h.End, " --version "+s.version.String())
		}
	}
	w := f.value
	if s.named {
		if in.upgraded = w.Value != "" && w.Value != in.Version.String() && !w.Dynamic; in.upgraded {
			s.setFlag(f, in.Version.String())
		}
		return
	}
	var err error
	in.assumed = w.Dynamic
	at := s.at(w, "--version "+w.Value)
	if in.Version, err = s.resolve(w.Value, w.Dynamic, at); err != nil {
		s.addAt(w, chartVersion, at.Subject, err.Error(), "write --version "+in.Version.String())
		s.setFlag(f, in.Version.String())
	}
}

// valuesFlag adds the settings of a -f file. The file may be one that the script writes.
func (s *script) valuesFlag(in *installation, h *call, f *flagUse) {
	for name := range strings.SplitSeq(f.value.Value, ",") {
		from := s.Files[name]
		if name == "-" {
			from = cmp.Or(h.Stdin, from)
		}
		if f.value.Dynamic {
			s.notJudged(f.value, name)
		} else if from != nil {
			from.Judged = true
			s.valuesText(in, doc{file: s.file, data: []byte(from.Text), line: from.Line})
		} else if data, err := s.open(s.file, name); err != nil {
			s.addAt(f.value, fileMissing, name,
				"cannot read this file here; skipped", "run gpuop lint where the file is")
		} else {
			name = path.Clean(name)
			s.asValues[name] = true
			s.valuesText(in, doc{file: name, data: data})
		}
	}
}

// settings parses --set, --set-string and --set-json. The values of similar flags, such as --set-file, are unknown.
func (s *script) settings(f *flagUse) (out []*model.Setting) {
	w := f.value
	key, text, assigns := strings.Cut(w.Value, "=")
	switch known := slices.Contains([]string{"--set", "--set-string", "--set-json"}, f.name); {
	case w.Dynamic || !known:
		if w.Placeholder() == "" {
			s.notJudged(w, f.name+" "+w.Value)
		}
		if assigns && key != "" && !strings.ContainsAny(key, "$`,[<{") {
			st := chart.Setting{Path: chart.ParsePath(key)}
			out = append(out, &model.Setting{Setting: st, Source: w.Raw, Unknown: true})
		}
	case f.name == "--set-json":
		if strings.HasPrefix(w.Value, "{") {
			key, text = "", w.Value
		}
		var node yaml.Node
		if yaml.Unmarshal([]byte(text), &node) == nil && len(node.Content) > 0 { // helm reports invalid JSON itself
			out = model.Flatten(&fields.Reader{}, s.file, 0, chart.ParsePath(key), node.Content[0])
		}
	default:
		var err error
		if out, err = model.Assignments(w.Value, f.name == "--set"); err != nil {
			s.addAt(w, model.SetSyntax, f.name+" "+w.Value, err.Error(), "")
		}
	}
	for _, st := range out {
		st.File, st.Line, st.Column, st.Node, st.Perhaps = s.file, w.Line, w.Col, nil, w.Perhaps
		st.Source = cmp.Or(st.Source, w.Value)
	}
	return out
}

// kubectl checks a kubectl command: its namespace, node labels, patch and manifest.
func (s *script) kubectl(h *call) {
	s.namespaceFlag(h)
	judged := false
	switch h.verb {
	case "label":
		judged = s.label(h)
	case "patch":
		d := doc{file: s.file}
		for _, w := range h.positional {
			d.kind = cmp.Or(d.kind, patched(w.Value))
		}
		if text := h.flag("--patch"); d.kind != kindUnknown && text != nil && !text.value.Dynamic {
			d.data, d.line = []byte(text.value.Value), text.value.Line-1
			s.patch(d)
		}
	case "create":
		if len(h.positional) > 1 && slices.Contains([]string{"namespace", "ns"}, h.positional[0].Value) &&
			s.namespace(h.positional[1]) {
			s.replace(h.positional[1], model.OperatorNamespace)
		}
	}
	s.unit(s.file, strings.TrimSpace("kubectl "+h.verb), judged)
	if h.Stdin != nil && slices.Contains([]string{"apply", "create", "replace", "diff"}, h.verb) {
		s.parse(docOf(s.file, h.Stdin))
	}
}

// labelPrefix is the prefix of NVIDIA's labels. writable lists the labels that users set.
const labelPrefix = "nvidia.com/"

var writable = strings.Fields(`mig.config device-plugin.config gpu.workload.config vgpu.config gpu.deploy.operands
	cc.mode gpu-driver-upgrade-enabled gpu-driver-upgrade-state gpu-driver-upgrade.skip`)

// label checks the labels that kubectl label sets. It reports whether any of them is an nvidia.com label.
func (s *script) label(h *call) (judged bool) {
	touchesMIG := false
	for _, w := range h.positional {
		key, value, found := strings.Cut(w.Value, "=")
		if !found || !strings.Contains(key, "/") {
			continue
		}
		prefix, name, _ := strings.Cut(key, "/")
		isOurs := prefix == "nvidia" || check.Nearest(prefix, []string{"nvidia.com"}) != ""
		near := labelPrefix + check.Nearest(name, writable)
		if isOurs && near != labelPrefix && near != key && !strings.HasPrefix(key, "nvidia.com/gpu.deploy.") {
			s.addAt(w, unknownLabel, key, "nothing reads this label", "write "+near)
			key = near
		}
		judged = judged || strings.HasPrefix(key, labelPrefix)
		touchesMIG = touchesMIG || key == "nvidia.com/mig.config"
		if key == sharing.ConfigLabel && !w.Dynamic {
			s.uses = append(s.uses, configUse{config: value, at: s.at(w, w.Value)})
		}
	}
	if f := h.flag("--overwrite"); touchesMIG && (f == nil || f.value.Value != "" && f.value.Value != "true") {
		const reason = "the operator sets nvidia.com/mig.config=all-disabled first, " +
			"and kubectl does not change an existing label without --overwrite"
		s.addAt(h.Words[0], overwrite, "kubectl label", reason, "add --overwrite")
	}
	return judged
}

// patched returns the operator's kind that a name such as clusterpolicies.nvidia.com/cluster-policy has, if any.
func patched(name string) kind {
	name, _, _ = strings.Cut(strings.ToLower(name), "/")
	for k, r := range resources {
		if slices.Contains(strings.Fields(r.names), strings.TrimSuffix(name, ".nvidia.com")) {
			return k
		}
	}
	return kindUnknown
}

// patch adds the documents of a patch: a partial object, or JSON Patch operations (RFC 6902).
func (r *run) patch(d doc) {
	add := func(root *yaml.Node) {
		inner := d
		inner.root, inner.reader, inner.partial = root, &fields.Reader{}, true
		inner.kind = cmp.Or(d.kind, detect(r.table, root))
		if inner.kind == kindCarrier || inner.kind == kindConfigMap || resources[inner.kind].api != "" {
			r.documents = append(r.documents, &inner)
		}
	}
	var operations []yaml.Node
	if yaml.Unmarshal(d.data, &operations) != nil {
		var reader fields.Reader
		if root := reader.Document(d.data); root != nil {
			add(root)
		} else if d.kind != kindUnknown {
			r.report(&d, reader.Findings)
		}
	}
	for i := range operations {
		at, n := fields.Get(&operations[i], "path"), fields.Get(&operations[i], "value")
		if at == nil || elementOf.MatchString(at.Value) {
			continue
		}
		n = cmp.Or(n, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"})
		for _, name := range slices.Backward(strings.Split(path.Clean(strings.Trim(at.Value, "/")), "/")) {
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: unescapePointer.Replace(name), Line: at.Line}
			n = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{key, n}, Line: at.Line}
		}
		add(n)
	}
}

var (
	unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
	// elementOf matches a JSON Pointer to an element of a list. Operations on elements are not checked.
	elementOf = regexp.MustCompile(`/(\d+|-)(/|$)`)
)
