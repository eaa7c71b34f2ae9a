package lint

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/schema"
)

// createdBy maps the kinds of custom resources to the setting that makes the chart create them.
var createdBy = map[kind]string{kindClusterPolicy: "clusterPolicy.deployCR", kindGPUCluster: "gpuCluster.deployCR"}

// falseCondition describes the first condition that is false, and the setting that would make it true, if there is one.
// It returns "" if all conditions are true or unknown.
func (in *installation) falseCondition(when []chart.Condition) (is, wanted string) {
	for _, c := range when {
		key, want, compares := strings.Cut(string(c), "=")
		value, known := in.Value(key)
		k, has := in.Table.Key(strings.Split(key, "."))
		switch text := chart.Text(value); {
		case key == createdBy[in.kind]: // the object exists
		case c == chart.Never:
			return fmt.Sprintf("the operator of %s does not use it", in.Version), ""
		case !has || !k.In(in.Version) || !known:
		case want == "*" && text == "":
			return key + " is not set", ""
		case want == "*":
		case compares && text != want, !compares && text == "false":
			if is = key + "=" + text; in.Explicit(key) == nil {
				is += ", which is the default"
			}
			return is, key + "=" + cmp.Or(want, "true")
		}
	}
	return "", ""
}

// deadSettings reports settings that a switch disables. It does not report current defaults in a file, or former
// defaults in a copy of a release's values.yaml. In a list of mirrored images, it does not report images and versions.
func (in *installation) deadSettings() {
	reported, copied, mirrored := map[*model.Setting]bool{}, !in.flags && in.isCopy(), in.mirrored()
	for _, p := range in.Table.Parts(in.Version) {
		groupIs, groupWanted := in.falseCondition(p.When)
		ownIs, ownWanted := in.falseCondition(p.When[1:])
		for _, s := range in.Below(p.Group, p.Except...) {
			is, wanted := groupIs, groupWanted
			own := s.Name() == string(p.When[0])
			if own {
				is, wanted = ownIs, ownWanted
			}
			if is == "" || own && s.Text() != "true" || reported[s] || !in.mayBeDead(s) || in.isRead(s) {
				continue
			}
			reported[s] = true
			if mirrored && isImageSource(s) {
				continue
			}
			if copied && in.Table.WasDefault(s.Setting) || mirrored && s.Path[len(s.Path)-1] == "version" {
				in.correct(s).Drop, in.correct(s).idle = true, true
				continue
			}
			fix := "set " + wanted
			switch {
			case wanted == "":
				fix = "delete it"
			case !own:
				fix = "delete it, or " + fix
			}
			if !own || p.Host != "" || wanted == "" {
				in.correct(s).Drop, in.correct(s).idle = true, true
			}
			in.add(deadSetting, "has no effect: "+is, fix, s)
		}
	}
}

// mirrored reports whether a file has at least four image settings. Such a file is probably for a registry mirror, and
// lists all operands whether they are enabled or not.
func (in *installation) mirrored() bool {
	sources := 0
	for _, s := range in.Settings {
		if isImageSource(s) {
			sources++
		}
	}
	return !in.flags && sources >= 4
}

// isImageSource reports whether a setting is the repository, name, pull policy or pull secrets of an image.
func isImageSource(s *model.Setting) bool {
	names := []string{"repository", "image", "imagePullPolicy", "imagePullSecrets"}
	return slices.Contains(names, s.Path[len(s.Path)-1])
}

// isRead reports whether an enabled operand reads the setting from the group of another operand.
func (in *installation) isRead(s *model.Setting) bool {
	return slices.ContainsFunc(in.Table.Reads(in.Version), func(r chart.Read) bool {
		if !strings.HasPrefix(s.Name()+".", r.Field+".") && !strings.HasPrefix(r.Field, s.Name()+".") {
			return false
		}
		is, _ := in.falseCondition(r.When)
		return is == ""
	})
}

// mayBeDead reports whether deadSettings should check a setting. It skips settings that are dropped or renamed, unknown
// keys and values, and defaults that a file repeats.
func (in *installation) mayBeDead(s *model.Setting) bool {
	c := in.correction(s)
	if c.Drop || s.Unknown || c.Rename != nil || !in.flags && in.repeatsDefault(s) {
		return false
	}
	return in.Match(s).Status != chart.Unknown
}

// isCopy reports whether the file looks like a copy of a release's values.yaml. A copy has more than 50 former or
// current defaults, and they are the majority of its settings.
func (in *installation) isCopy() bool {
	defaults := 0
	for _, s := range in.Settings {
		if in.Table.WasDefault(s.Setting) {
			defaults++
		}
	}
	return defaults > 50 && defaults > len(in.Settings)/2
}

// repeatsDefault reports whether the setting equals the default of the release. In a custom resource, every list counts
// as a default.
func (in *installation) repeatsDefault(s *model.Setting) bool {
	isVersion := s.Path[len(s.Path)-1] == "version" && chart.Released(s.Path[0])
	if isVersion && s.Text() == in.Table.AppVersion(in.Version) {
		return true
	}
	if _, isList := s.Value.([]any); in.isResource() && isList {
		return true // the chart itself writes lists to its custom resources
	}
	value, known := in.Table.Default(in.Version, s.Name())
	return known && chart.Same(value, s.Value)
}

// contradictions reports settings that must not be combined.
func (in *installation) contradictions() {
	for _, e := range in.Table.Exclusions() {
		holds := true
		for _, c := range e.When {
			value, known := in.Value(c.Key())
			holds = holds && known && !in.correction(in.Explicit(c.Key())).Drop && c.Holds(chart.Text(value), false)
		}
		var given []*model.Setting
		for _, path := range e.At {
			if s := in.Explicit(path); s != nil {
				given = append(given, s)
			}
		}
		if holds && len(given) > 0 {
			in.add(excludes, e.Reason, e.Fix, given...).Severity = e.State
		}
	}
}

// precompiledVersion checks driver.version. Precompiled drivers need a branch such as 580, but the chart's default is a
// full version.
func (in *installation) precompiledVersion() {
	s := in.Explicit("driver.version")
	value, known := in.Value("driver.version")
	precompiled, sure := in.Value("driver.usePrecompiled")
	version := chart.Text(value)
	if !known || !sure || chart.Text(precompiled) != "true" || s == nil && in.isResource() {
		return
	}
	if version == "" || chart.DriverBranch(version) || in.ownImage("driver") {
		return
	}
	major, _, _ := strings.Cut(version, ".")
	fix, reason := "write a branch such as 580", fmt.Sprintf("found %q", version)
	if chart.DriverBranch(major) {
		fix = "write " + major
		switch {
		case s == nil:
			fix = "set driver.version=" + major
		case !in.correction(s).Drop:
			in.set(s, major)
		}
	}
	if s == nil {
		if s = in.Explicit("driver.usePrecompiled"); s == nil || in.correction(s).Drop {
			return
		}
		reason = "but driver.version is " + version + " by default"
	}
	reason = "driver.usePrecompiled=true needs a driver branch, " + reason +
		"; precompiled images are tagged <branch>-<kernel>-<os>"
	in.add(precompiledVersion, reason, fix, s)
}

var repositoryName = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*$`)

// given returns the user's setting at a path. It returns nil if the setting is missing or its value is empty or
// unknown.
func (in *installation) given(path string) *model.Setting {
	if s := in.Explicit(path); s != nil && !s.Unknown && s.Text() != "" {
		return s
	}
	return nil
}

// images checks image settings. The operator joins them as repository/image:version. If repository and version are
// empty, image is the whole reference.
func (in *installation) images() {
	in.systems()
	const join = "the operator joins repository/image:version"
	for _, c := range in.Table.Images(in.Version) {
		if s := in.given(c + ".repository"); s != nil && !repositoryName.MatchString(s.Text()) {
			fix := ""
			trimmed := strings.Trim(strings.TrimPrefix(strings.TrimPrefix(s.Text(), "https://"), "http://"), "/ ")
			if repositoryName.MatchString(trimmed) {
				fix = "write " + trimmed
				in.set(s, trimmed)
			}
			in.add(imageParts, fmt.Sprintf("%q is not a registry and path; %s", s.Text(), join), fix, s)
		}
		if s := in.given(c + ".image"); s != nil && !(in.empty(c+".repository") && in.empty(c+".version")) {
			in.imageName(c, s)
		}
	}
}

// systemSuffix matches the operating system at the end of a driver image's tag.
var systemSuffix = regexp.MustCompile(`-(ubuntu|rhel|rhcos|rocky|ol|sles|sle|sl-micro|centos|debian|fedora|amzn|` +
	`flatcar|photon|cos)[0-9][0-9.]*$`)

// systems reports image tags that already end in an operating system, which the operator appends again.
func (in *installation) systems() {
	for _, section := range in.Table.SystemImages(in.Version) {
		s := in.given(section + ".version")
		if s == nil || strings.HasPrefix(s.Text(), "sha256:") {
			continue
		}
		if suffix := systemSuffix.FindString(s.Text()); suffix != "" {
			right := strings.TrimSuffix(s.Text(), suffix)
			in.set(s, right)
			reason := "the operator appends the operating system to the tag, which becomes " + s.Text() + suffix
			in.add(imageParts, reason, "write "+right, s)
		}
	}
}

// empty reports whether the effective value at path is known and is an empty string, null, a list or a map.
func (in *installation) empty(path string) bool {
	value, known := in.Value(path)
	return known && chart.Text(value) == ""
}

// imageName reports an image name that contains a tag, digest or registry.
func (in *installation) imageName(component string, s *model.Setting) {
	value, _ := in.Value(component + ".repository")
	registry, _, _ := strings.Cut(chart.Text(value), "/")
	name := s.Text()
	// a path in a mirror may be part of the name
	isPath := in.Explicit(component+".repository") == nil && strings.Contains(name, "/")
	if isPath || strings.HasPrefix(name, registry+"/") || strings.ContainsAny(name, ":@ ") {
		const reason = "%q contains more than the image's name: repository/image:version cannot be pulled"
		in.add(imageParts, fmt.Sprintf(reason, name), "split it into "+imageKeys(component), s)
	}
}

// imageKeys lists the keys that form the reference of a component's image.
func imageKeys(component string) string {
	return fmt.Sprintf("%[1]s.repository, %[1]s.image and %[1]s.version", component)
}

// versions reports pinned versions of operands that differ from the chart's. A pin works, so it is kept. In an upgrade,
// a version that is the default of an older release is dropped.
func (in *installation) versions() {
	for _, c := range append(in.Table.Images(in.Version), "nfd") {
		s, made := in.given(chart.VersionKey(c)), in.Table.Tag(in.Version, c)
		if s == nil || c == "driver" || made == "" || chart.SameTag(s.Text(), made) {
			continue // each release supports several driver branches, so the driver's version is not compared
		}
		if given := in.correction(s); given.Changes() || !in.flags && in.repeatsDefault(s) || in.ownImage(c) {
			continue
		}
		relation, severity, order := "not", check.Warning, chart.CompareTags(s.Text(), made)
		switch {
		case order > 0:
			relation = "newer than"
		case order < 0:
			relation = "older than"
		}
		reason := fmt.Sprintf("%s is %s %s, the version tested with chart %s", s.Text(), relation, made, in.Version)
		fix := "delete it, unless you need this version: the chart's default is the tested one"
		for _, v := range slices.Backward(in.Table.Versions()) {
			if chart.SameTag(s.Text(), in.Table.Tag(v, c)) {
				reason += ": it is the default of " + v.String()
				fix = "delete it: the chart's default is the tested version"
				if order > 0 {
					severity = check.Note
				}
				in.correct(s).Drop = in.upgraded && v.Before(in.Version)
				break
			}
		}
		m := in.add(operandVersion, reason, fix, s)
		m.Severity = severity
		if in.assumed && severity == check.Warning { // probably written for a release that is not named
			m.Cause = "other operand versions"
			m.Together = "not the versions that were tested with chart " + in.Version.String()
			m.Fix = "delete pinned versions that you do not need: the chart's defaults are the tested ones"
		}
	}
}

// ownImage reports whether the user sets a repository that is neither NVIDIA's nor a mirror of it. Custom images have
// their own version numbers.
func (in *installation) ownImage(component string) bool {
	s := in.Explicit(component + ".repository")
	if s == nil {
		return false
	}
	upstream, known := in.Table.Default(in.Version, component+".repository")
	_, path, hasPath := strings.Cut(chart.Text(upstream), "/")
	return known && hasPath && s.Text() != path && !strings.HasSuffix(s.Text(), "/"+path)
}

// oldDefaults reports image repositories, image names and a ConfigMap of the MIG manager that are defaults of older
// releases.
func (in *installation) oldDefaults() {
	for _, s := range in.Settings {
		k, known := in.Table.Key(s.Path)
		if !known || !k.In(in.Version) || in.correction(s).Drop || s.Text() == "" {
			continue
		}
		value, _ := k.Default(in.Version)
		current := chart.Text(value)
		since, found := k.Replaced(s.Text())
		found = found && current != s.Text() && !in.Version.Before(since)
		switch last := s.Path[len(s.Path)-1]; {
		case last == "repository":
			in.moved(k, s, current)
		case last == "image" && found:
			all, component := []*model.Setting{s}, strings.Join(s.Path[:len(s.Path)-1], ".")
			in.replaceOrDrop(s, current)
			if version := in.given(component + ".version"); version != nil { // this version belongs to the old image
				in.replaceOrDrop(version, in.Table.Tag(in.Version, component))
				all = append(all, version)
			}
			const reason = "was the chart's default before %s; in this release the image is %s"
			in.add(oldDefault, fmt.Sprintf(reason, since, current), "delete it", all...)
		case s.Name() == "migManager.config.name" && found:
			in.correct(s).Drop = in.upgraded
			const reason = "was the chart's default before %s; " +
				"setting it disables the configs that the MIG manager generates for each node"
			in.add(oldDefault, fmt.Sprintf(reason, since), "delete it", s).Severity = check.Warning
		}
	}
}

func (in *installation) replaceOrDrop(s *model.Setting, current string) {
	if in.keep && current != "" {
		in.set(s, current)
	} else {
		in.correct(s).Drop = true
	}
}

// moved reports a repository path that NVIDIA no longer uses for the image. Mirrors have NVIDIA's paths, so they are
// checked too.
func (in *installation) moved(k *chart.Key, s *model.Setting, current string) {
	_, now, _ := strings.Cut(current, "/")
	for _, d := range k.Defaults() {
		_, before, hasPath := strings.Cut(chart.Text(d.Value), "/")
		registry, is := strings.CutSuffix(s.Text(), "/"+before)
		if !is || !hasPath || now == "" || before == now || in.Version.Before(d.From) {
			continue
		}
		right := registry + "/" + now
		in.set(s, right)
		const reason = "NVIDIA publishes the image as %s for this release; it was %s before"
		m := in.add(oldDefault, fmt.Sprintf(reason, now, before), "write "+right, s)
		if right != current {
			m.Severity = check.Warning
		}
		return
	}
}

var (
	// spacedQuantity matches a quantity with a space before its unit.
	spacedQuantity = regexp.MustCompile(`^([0-9.]+)\s+(m|[kKMGTPE]i?)$`)
	effects        = []string{"", "NoSchedule", "PreferNoSchedule", "NoExecute"}
)

// kubernetes checks values that the chart copies to Kubernetes objects: quantities, and effects of tolerations.
func (in *installation) kubernetes(s *model.Setting) {
	in.quantity(s)
	if s.Node == nil || s.Path[len(s.Path)-1] != "tolerations" {
		return
	}
	for _, item := range fields.Items(s.Node) {
		effect := fields.Get(item, "effect")
		if effect == nil || slices.Contains(effects, effect.Value) || model.UnknownNode(effect) {
			continue
		}
		fix := check.Suggest(effect.Value, effects[1:], "write NoSchedule, PreferNoSchedule or NoExecute")
		reason := fmt.Sprintf("unknown effect %q; the API server rejects it", effect.Value)
		m := in.add(schema.WrongValue, reason, fix, s)
		m.Line, m.Column = effect.Line+s.Shift, effect.Column
	}
}

// quantity reports a quantity of memory or CPU that contains a space.
func (in *installation) quantity(s *model.Setting) {
	m := spacedQuantity.FindStringSubmatch(s.Text())
	if m == nil || !slices.Contains(s.Path, "limits") && !slices.Contains(s.Path, "requests") {
		return
	}
	in.set(s, m[1]+m[2])
	reason := fmt.Sprintf("%q is not a valid quantity: the API server rejects the space", s.Text())
	in.add(schema.WrongValue, reason, "write "+m[1]+m[2], s)
}

// globals reports image settings below "global", which the operator's chart does not read.
func (in *installation) globals(s *model.Setting) {
	if s.Path[0] == "global" && len(s.Path) == 2 && strings.HasPrefix(s.Path[1], "image") {
		const fix = "set <operand>.repository and <operand>.imagePullSecrets of each operand"
		in.add(deadSetting, "the chart does not read it", fix, s)
	}
}

// types checks the type of each value. A value is checked against the custom resource field that it is copied to, or
// against the chart's key.
func (in *installation) types() {
	for _, s := range in.Settings {
		v := in.Match(s)
		in.globals(s)
		if v.Status != chart.Known && v.Status != chart.Free {
			continue
		}
		in.kubernetes(s)
		if s.Unknown || s.Value == nil || in.correction(s).Rename != nil {
			continue
		}
		f, printed := in.Table.ValueField(in.Version, v, s.Path, model.ListIndex.ReplaceAllString(s.Element, "[]"))
		if f != nil && !(printed && in.textForSwitch(v.Key, s)) {
			in.validate(s, f, printed)
		}
	}
}

// validate checks a setting against a field, and adds the findings. printed means that a template prints the value as
// text.
func (in *installation) validate(s *model.Setting, f *chart.Field, printed bool) {
	node := s.Node
	if node == nil {
		node = &yaml.Node{}
		_ = node.Encode(s.Value) // cannot fail: the value was decoded before
		if printed && s.Typed {
			node.Style = 0 // --set writes plain scalars
		}
	}
	v := &schema.Validator{
		Table: in.Table, Version: in.Version, Kind: "ClusterPolicy", Printed: printed, Reader: &fields.Reader{},
	}
	v.Value(f, s.Name(), node)
	for _, found := range v.Reader.Findings {
		m := mistake{Finding: found, settings: []*model.Setting{s}}
		m.File = s.File
		if s.Node == nil {
			m.Line, m.Column = s.Line, s.Column
		} else {
			m.Line += s.Shift
		}
		if found.Check == schema.UnknownField {
			m.Check = fields.UnknownKey
		}
		if found.Check == fields.WrongType && f.Type == "string" && s.Text() != "" && s.Typed {
			m.Fix = cmp.Or(s.AsText, "write --set-string")
		}
		in.mistakes = append(in.mistakes, m)
	}
	if v.Near != "" && node.Kind == yaml.ScalarNode {
		in.set(s, v.Near)
	}
}

// textForSwitch reports the text "false" for a switch that a template tests, because templates treat every non-empty
// text as true. It returns whether it added a finding.
func (in *installation) textForSwitch(k *chart.Key, s *model.Setting) bool {
	if s.Value != "false" || s.Name() != "nfd.enabled" && k.Use(in.Version) != chart.Tested {
		return false
	}
	const reason = `found the text "false", expected the boolean: ` +
		"Helm treats any non-empty text as true, so the setting stays enabled"
	in.add(fields.WrongType, reason, "write false without quotes", s)
	return true
}

// resource checks a ClusterPolicy, NVIDIADriver or GPUCluster.
func (r *run) resource(d *doc) {
	v := &schema.Validator{
		Table: r.table, Version: r.orLatest(), Kind: string(d.kind), Reader: d.reader,
		Partial: d.partial || r.isPatch(d.file), Assumed: r.version == (chart.Version{}),
	}
	found, want := fields.Text(d.root, "apiVersion"), resources[d.kind].api
	if found != want && !(d.partial && found == "") {
		at := cmp.Or(fields.Get(d.root, "apiVersion"), d.root)
		reason := fmt.Sprintf("found %s; the apiVersion of a %s is %s", cmp.Or(found, "nothing"), d.kind, want)
		v.Add(apiVersion, at, "apiVersion", reason, "write "+want)
	}
	if spec := fields.Get(d.root, "spec"); spec != nil {
		v.Value(schema.Spec, "spec", spec)
		selector := fields.Get(spec, "nodeSelector")
		isDefault := d.kind == kindNVIDIADriver && fields.Text(spec, "default") == "true"
		if isDefault && selector != nil && len(selector.Content) > 0 {
			const reason = "the API server rejects it: " +
				"the default driver selects the nodes that no other driver selects"
			v.Add(excludes, selector, "spec.nodeSelector", reason, "delete nodeSelector, or default: true")
		}
		r.rulesOf(d, spec, v.Assumed)
	}
	r.report(d, check.Together(v.Reader.Findings))
}

// rulesOf runs the rules for values on a custom resource, whose fields have the same names as the chart's keys.
func (r *run) rulesOf(d *doc, spec *yaml.Node, assumed bool) {
	ofDriver := d.kind == kindNVIDIADriver
	var prefix chart.Path
	if ofDriver {
		prefix = chart.Path{"driver"}
	}
	in := newInstallation(r.table, r.orLatest(), model.Flatten(&fields.Reader{}, d.file, d.line, prefix, spec))
	in.kind, in.assumed = d.kind, assumed
	for _, s := range in.Settings {
		switch s.Name() {
		case "driver.gds.enabled", "driver.gdrcopy.enabled":
			s.Path, s.Called = s.Path[1:], ""
		}
	}
	if !d.partial { // the rules need all values, and a patch has only some
		in.runRules()
	}
	for i := range in.mistakes {
		m := &in.mistakes[i]
		if ofDriver {
			m.Subject = strings.ReplaceAll(m.Subject, "driver.", "")
		}
		m.Subject = "spec." + m.Subject
	}
	r.add(d.file, in.findings()...)
	r.configUses(in, "spec.")
}
