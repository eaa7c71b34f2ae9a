package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	gotypes "go/types"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// source is the part of a release's source code that describes operands: the Go code of the controllers, the types of
// the ClusterPolicy, and the manifests of DaemonSets.
type source struct {
	funcs   map[string]*ast.FuncDecl      // functions of the controllers, by name
	methods map[string]*ast.FuncDecl      // methods of the types, as Type.Name
	structs map[string]*ast.StructType    // the types
	values  map[string]ast.Expr           // constants and variables of controllers and types
	sets    map[string][]appsv1.DaemonSet // DaemonSets by state
}

func newSource() *source {
	return &source{
		map[string]*ast.FuncDecl{},
		map[string]*ast.FuncDecl{},
		map[string]*ast.StructType{},
		map[string]ast.Expr{},
		map[string][]appsv1.DaemonSet{},
	}
}

// errSource is returned for source code that this package cannot interpret.
var errSource = errors.New("the operator's source has an unsupported form")

// readTag reads a release tag in a clone of github.com/NVIDIA/gpu-operator.
func readTag(clone, tag string) (*source, error) {
	out, err := exec.Command("git", "-C", clone, "archive", tag, "controllers", "api", "assets").Output()
	if err != nil {
		return nil, fmt.Errorf("git archive %s in %s: %w", tag, clone, err)
	}
	s := newSource()
	reader := tar.NewReader(bytes.NewReader(out))
	for {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(reader)
		if err == nil {
			err = s.add(h.Name, text)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%s: %w", tag, h.Name, err)
		}
	}
}

func (s *source) add(name string, text []byte) error {
	switch {
	case strings.HasSuffix(name, "_test.go"):
	case path.Base(name) == "clusterpolicy_types.go", path.Dir(name) == "controllers" && path.Ext(name) == ".go":
		f, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			s.declare(d, path.Dir(name) == "controllers")
		}
	case strings.HasPrefix(name, "assets/") && bytes.Contains(text, []byte("kind: DaemonSet")):
		var d appsv1.DaemonSet
		if err := yaml.Unmarshal(text, &d); err != nil {
			return err
		}
		state := path.Base(path.Dir(name))
		s.sets[state] = append(s.sets[state], d)
	}
	return nil
}

func (s *source) declare(d ast.Decl, controllers bool) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			s.funcs[d.Name.Name] = d
			return
		}
		of := d.Recv.List[0].Type
		if pointer, ok := of.(*ast.StarExpr); ok {
			of = pointer.X
		}
		s.methods[types(of)+"."+d.Name.Name] = d
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if t, ok := spec.Type.(*ast.StructType); ok && !controllers {
					s.structs[spec.Name.Name] = t
				}
			case *ast.ValueSpec:
				for i, value := range spec.Values {
					s.values[spec.Names[i].Name] = value
				}
			}
		}
	}
}

// types returns the name of a type, without its package qualifier or pointer, or "" for other expressions.
func types(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return types(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// text returns the value of a string literal or constant, or "" for other expressions.
func (s *source) text(e ast.Expr) string {
	if constant, ok := s.values[types(e)].(*ast.BasicLit); ok {
		e = constant
	}
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		text, _ := strconv.Unquote(l.Value)
		return text
	}
	return ""
}

// field returns the JSON name and the type of a struct field, or "" and "" if there is no such field. It also searches
// embedded structs.
func (s *source) field(of, name string) (json, is string) {
	t := s.structs[of]
	if t == nil {
		return "", ""
	}
	for _, f := range t.Fields.List {
		if len(f.Names) == 0 {
			if json, is := s.field(types(f.Type), name); json != "" {
				return json, is
			}
		}
		if f.Tag == nil || !slices.ContainsFunc(f.Names, func(n *ast.Ident) bool { return n.Name == name }) {
			continue
		}
		_, tag, _ := strings.Cut(s.text(f.Tag), `json:"`)
		json, _, _ = strings.Cut(tag, `"`)
		json, _, _ = strings.Cut(json, ",")
		return json, types(f.Type)
	}
	return "", ""
}

// spec interprets an expression such as clusterPolicySpec.Driver.Manager, &config.Driver or n.singleton.Spec.Driver. It
// returns the path below the spec, and the type. ok is false for other expressions.
func (s *source) spec(e ast.Expr) (p, is string, ok bool) {
	switch e := e.(type) {
	case *ast.UnaryExpr:
		return s.spec(e.X)
	case *ast.Ident:
		return "", "ClusterPolicySpec", e.Name == "config" || e.Name == "clusterPolicySpec"
	case *ast.SelectorExpr:
		if e.Sel.Name == "Spec" {
			return "", "ClusterPolicySpec", true
		}
		above, of, ok := s.spec(e.X)
		json, is := s.field(of, e.Sel.Name)
		if !ok || json == "" {
			return "", "", false
		}
		return strings.TrimPrefix(above+"."+json, "."), is, true
	}
	return "", "", false
}

// condition interprets a condition of isStateEnabled, or of an if statement around addState. All conditions in list
// must hold. standard is the result if the ClusterPolicy does not set the fields.
func (s *source) condition(e ast.Expr) (list []chart.Condition, standard bool, err error) {
	switch e := e.(type) {
	case *ast.Ident:
		if e.Name == "true" {
			return nil, true, nil
		}
		if e.Name == "false" {
			return []chart.Condition{chart.Never}, false, nil
		}
	case *ast.SelectorExpr:
		if e.Sel.Name == "sandboxEnabled" {
			return []chart.Condition{"sandboxWorkloads.enabled"}, false, nil
		}
	case *ast.BinaryExpr:
		if e.Op == token.LAND {
			left, x, err := s.condition(e.X)
			right, y, err2 := s.condition(e.Y)
			return append(left, right...), x && y, errors.Join(err, err2)
		}
		p, _, ok := s.spec(e.X)
		if call, isCall := e.Y.(*ast.CallExpr); ok && isCall && e.Op == token.EQL && len(call.Args) == 1 {
			if value := s.text(call.Args[0]); value != "" {
				return []chart.Condition{chart.Condition(p + "=" + value)}, false, nil
			}
		}
	case *ast.CallExpr:
		method, ok := e.Fun.(*ast.SelectorExpr)
		if !ok {
			break
		}
		p, is, ok := s.spec(method.X)
		if key, standard, known := s.method(is + "." + method.Sel.Name); ok && known {
			return []chart.Condition{chart.Condition(p + "." + key)}, standard, nil
		}
	}
	return nil, false, fmt.Errorf("%w: the condition %s", errSource, gotypes.ExprString(e))
}

// method interprets a method such as DriverSpec.IsEnabled. It returns the JSON name of the pointer field that the
// method tests, and the method's result if the field is nil.
func (s *source) method(name string) (key string, standard, known bool) {
	f := s.methods[name]
	if f == nil || len(f.Body.List) != 2 {
		return "", false, false
	}
	test, ok := f.Body.List[0].(*ast.IfStmt)
	if !ok {
		return "", false, false
	}
	compared, ok := test.Cond.(*ast.BinaryExpr)
	if !ok {
		return "", false, false
	}
	of, _, _ := strings.Cut(name, ".")
	key, _ = s.field(of, types(compared.X))
	result, ok := test.Body.List[len(test.Body.List)-1].(*ast.ReturnStmt)
	return key, ok && types(result.Results[0]) == "true", ok && key != ""
}

// A state is a step of the operator, which deploys DaemonSets under some conditions.
type state struct {
	name     string
	when     []chart.Condition
	standard bool
	err      error
}

// states returns the states that init adds, in order. Up to v1.11, the conditions are the if statements around
// addState. Since v22.9, they are in isStateEnabled.
func (s *source) states() []state {
	var out []state
	add := func(call *ast.CallExpr, around []ast.Expr) {
		if types(call.Fun) != "addState" {
			return
		}
		st := state{name: path.Base(s.text(call.Args[1])), standard: true}
		for _, cond := range around {
			when, standard, err := s.condition(cond)
			st.when, st.standard, st.err = append(st.when, when...), st.standard && standard, errors.Join(st.err, err)
		}
		if !slices.ContainsFunc(out, func(o state) bool { return o.name == st.name }) {
			out = append(out, st)
		}
	}
	for _, m := range s.methods {
		if m.Name.Name == "init" {
			calls(m.Body, nil, add)
		}
	}
	if enabled := s.methods["ClusterPolicyController.isStateEnabled"]; enabled != nil {
		ast.Inspect(enabled, func(n ast.Node) bool {
			clause, ok := n.(*ast.CaseClause)
			if !ok || len(clause.List) != 1 {
				return true
			}
			result, ok := clause.Body[len(clause.Body)-1].(*ast.ReturnStmt)
			for i := range out {
				if ok && out[i].name == s.text(clause.List[0]) {
					out[i].when, out[i].standard, out[i].err = s.condition(result.Results[0])
				}
			}
			return true
		})
	}
	return out
}

// calls visits the calls below a node, each with the conditions of the if statements around it. Comparisons with == are
// ignored, such as the one that no state was added yet (len == 0).
func calls(n ast.Node, around []ast.Expr, visit func(*ast.CallExpr, []ast.Expr)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			inner := around
			if compared, ok := n.Cond.(*ast.BinaryExpr); !ok || compared.Op != token.EQL {
				inner = append(slices.Clone(around), n.Cond)
			}
			calls(n.Body, inner, visit)
			if n.Else != nil {
				calls(n.Else, around, visit)
			}
			return false
		case *ast.CallExpr:
			visit(n, around)
		}
		return true
	})
}

// images returns the sections of the ClusterPolicy whose images a function, or a function that it calls, writes into a
// DaemonSet. The value of a section is true if the tag ends in the operating system. own is the first section that the
// function itself writes.
func (s *source) images(transform string) (parts map[string]bool, own string) {
	parts = map[string]bool{}
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		f := s.funcs[name]
		if f == nil || seen[name] {
			return
		}
		seen[name] = true
		ast.Inspect(f.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			called := types(call.Fun)
			for _, a := range call.Args {
				p, is, ok := s.spec(a)
				if image, _ := s.field(is, "Image"); !ok || image == "" {
					continue
				}
				// v1.7 has no resolveDriverTag: TransformDriver does the same
				isTagged := called == "resolveDriverTag" || s.funcs["resolveDriverTag"] == nil && p == "driver"
				parts[p] = parts[p] || isTagged
				if own == "" && name == transform && (called == "ImagePath" || called == "resolveDriverTag") {
					own = p
				}
			}
			visit(called)
			return true
		})
	}
	visit(transform)
	return parts, own
}

// reader collects the fields of the ClusterPolicy that functions of the operator read.
type reader struct {
	*source
	fields map[string]bool
	seen   map[string]bool
}

// reads returns the ClusterPolicy fields that a function reads, directly or through functions that it calls. A section
// that is used as a whole appears as one entry, the section's path. An image that is resolved appears as its
// repository, image and version. Fields that are read only if their section is enabled are omitted.
func (s *source) reads(transform string) map[string]bool {
	r := &reader{s, map[string]bool{}, map[string]bool{}}
	r.function(transform)
	return r.fields
}

func (r *reader) function(name string) {
	if f := r.funcs[name]; f != nil && !r.seen[name] {
		r.seen[name] = true
		r.read(f.Body, nil)
	}
}

// read collects the fields that are read below a node. guarded lists the sections that the if statements around the
// node require to be enabled.
func (r *reader) read(n ast.Node, guarded []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			r.read(n.Cond, guarded)
			r.read(n.Body, append(slices.Clone(guarded), r.switchesIn(n.Cond)...))
			if n.Init != nil {
				r.read(n.Init, guarded)
			}
			if n.Else != nil {
				r.read(n.Else, guarded)
			}
			return false
		case *ast.BinaryExpr:
			_, is, ok := r.spec(n.X)
			return !ok || is == "string" || types(n.Y) != "nil"
		case *ast.CallExpr:
			return r.call(n, guarded)
		case *ast.SelectorExpr:
			if p, _, ok := r.spec(n); ok && p != "" {
				r.add(p, guarded)
				return false
			}
		}
		return true
	})
}

func (r *reader) add(field string, guarded []string) {
	isBelow := func(section string) bool { return strings.HasPrefix(field, section+".") }
	if !slices.ContainsFunc(guarded, isBelow) {
		r.fields[field] = true
	}
}

// call collects the fields that a call reads. It reports whether the parts of the call must also be read.
func (r *reader) call(n *ast.CallExpr, guarded []string) bool {
	if method, ok := n.Fun.(*ast.SelectorExpr); ok {
		if p, is, ok := r.spec(method.X); ok && p != "" {
			if key, _, known := r.method(is + "." + method.Sel.Name); known {
				p += "." + key
			}
			r.add(p, guarded)
			return false
		}
	}
	name := types(n.Fun)
	r.function(name)
	if name != "ImagePath" && name != "resolveDriverTag" {
		return true
	}
	for _, a := range n.Args {
		if p, _, ok := r.spec(a); ok {
			for _, part := range []string{".repository", ".image", ".version"} {
				r.add(p+part, guarded)
			}
		}
	}
	return false
}

// switchesIn returns the sections that must be enabled for the condition to be true.
func (s *source) switchesIn(cond ast.Expr) []string {
	if both, ok := cond.(*ast.BinaryExpr); ok && both.Op == token.LAND {
		return append(s.switchesIn(both.X), s.switchesIn(both.Y)...)
	}
	when, _, err := s.condition(cond)
	if err != nil || len(when) != 1 {
		return nil
	}
	section, found := strings.CutSuffix(string(when[0]), ".enabled")
	if !found {
		return nil
	}
	return []string{section}
}

// readsOfOthers returns the fields that an operand's function reads outside of the operand's own section. Sections of
// containers with their own switch, images of containers with conditions, and fields below a listed one are omitted.
func (s *source) readsOfOthers(transform string, o chart.Operand) []string {
	own := []string{o.Settings}
	for _, c := range o.Containers {
		if slices.Contains(c.When, chart.Condition(c.Image+".enabled")) {
			own = append(own, c.Image)
		}
		if len(c.When) > 0 {
			own = append(own, c.ImageFields()...)
		}
	}
	var out []string
	for _, field := range slices.Sorted(maps.Keys(s.reads(transform))) {
		isBelow := func(above string) bool { return strings.HasPrefix(field+".", above+".") }
		if !slices.ContainsFunc(own, isBelow) && !slices.ContainsFunc(out, isBelow) {
			out = append(out, field)
		}
	}
	return out
}

// containers lists the exceptions to two rules: the image of a container is set in its operand's section of the
// ClusterPolicy, and every pod of the operand has the container. A plus sign stands for the operand's section. operand
// checks the list against the sections that the code reads.
var containers = []struct {
	name, image string
	when        chart.Condition
}{
	{"k8s-driver-manager", "+.manager", ""},
	{"k8s-driver-manager", "+.driverManager", ""},
	{"nvidia-peermem-ctr", "+", "driver.rdma.enabled"},
	{"nvidia-fs-ctr", "gds", "gds.enabled"},
	{"nvidia-gdrcopy-ctr", "gdrcopy", "gdrcopy.enabled"},
	{"openshift-driver-toolkit-ctr", "", ""}, // the image is OpenShift's own
	{"config-manager", "devicePlugin", "devicePlugin.config.name=*"},
	{"config-manager-init", "devicePlugin", "devicePlugin.config.name=*"},
	{"mps-control-daemon-mounts", "devicePlugin", ""},
	{"gpu-feature-discovery-imex-init", "+", ""},
}

// operands returns the operands of the release, in the order in which the operator creates them.
func (s *source) operands() ([]chart.Operand, error) {
	var out []chart.Operand
	for _, st := range s.states() {
		for _, d := range s.sets[st.name] {
			o, err := s.operand(st, d)
			if err = errors.Join(st.err, err); err != nil {
				return nil, fmt.Errorf("%s, DaemonSet %s: %w", st.name, d.Name, err)
			}
			out = append(out, o)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no state with a DaemonSet", errSource)
	}
	onlySwitched(out)
	return out, nil
}

// onlySwitched removes from Reads the fields of sections that cannot be disabled. A section can be disabled if
// SECTION.enabled is a condition of an operand or of a container.
func onlySwitched(operands []chart.Operand) {
	switches := map[chart.Condition]bool{}
	for _, o := range operands {
		for _, c := range o.Containers {
			o.When = append(slices.Clip(o.When), c.When...)
		}
		for _, c := range o.When {
			switches[c] = true
		}
	}
	for i := range operands {
		var reads []string // stays nil without reads, as in operands.txt
		for _, field := range operands[i].Reads {
			section, _, _ := strings.Cut(field, ".")
			if switches[chart.Condition(section+".enabled")] {
				reads = append(reads, field)
			}
		}
		operands[i].Reads = reads
	}
}

func (s *source) operand(st state, d appsv1.DaemonSet) (chart.Operand, error) {
	transform := s.transformation(d.Name)
	parts, own := s.images(transform)
	for i := 0; own == "" && i < len(st.when); i++ {
		// other functions write the images of the driver and the vGPU manager
		if p, is := strings.CutSuffix(string(st.when[i]), ".enabled"); is && p != "sandboxWorkloads" {
			own = p
		}
	}
	if own == "" && len(parts) == 1 {
		own = slices.Collect(maps.Keys(parts))[0]
	}
	if slices.Contains(st.when, chart.Never) {
		own, _ = s.field("ClusterPolicySpec", "KataManager")
		parts = map[string]bool{own: false}
	}
	o := chart.Operand{DaemonSet: d.Name, Settings: own, When: st.when, Standard: st.standard}
	for key := range d.Spec.Template.Spec.NodeSelector {
		if label, found := strings.CutPrefix(key, "nvidia.com/gpu.deploy."); found {
			o.Label = label
		}
	}
	o.Workloads = s.workloads("nvidia.com/gpu.deploy." + o.Label)
	used := map[string]bool{}
	add := func(list []corev1.Container, init bool) {
		for _, c := range list {
			if made, ok := s.container(c.Name, own, init, parts); ok {
				o.Containers, used[made.Image] = append(o.Containers, made), true
			}
		}
	}
	add(d.Spec.Template.Spec.InitContainers, true)
	if _, ok := parts["operator.initContainer"]; ok {
		// the code adds this container; no manifest has it
		when := chart.Openshift
		if s.funcs["resolveDriverTag"] == nil {
			when = chart.RedHat // the condition in v1.7
		}
		o.Containers = append(o.Containers, chart.Container{
			Name:  "init-pod-nvidia-node-status-exporter",
			Init:  true,
			Image: "operator.initContainer",
			When:  []chart.Condition{when},
		})
		used["operator.initContainer"] = true
	}
	add(d.Spec.Template.Spec.Containers, false)
	if !used["validator"] {
		delete(parts, "validator") // a helper of the function reads it for every pod
	}
	if !slices.Contains(st.when, chart.Never) {
		o.Reads = s.readsOfOthers(transform, o)
	}
	if want, have := slices.Sorted(maps.Keys(parts)), slices.Sorted(maps.Keys(used)); !slices.Equal(want, have) {
		return o, fmt.Errorf("%w: the code reads the images of %v, but the containers use %v", errSource, want, have)
	}
	return o, nil
}

// container describes an operand's container: the ClusterPolicy section of its image, and the conditions under which
// the pod has it. own is the operand's section. parts holds the sections whose images the code reads. ok is false if no
// section sets the image.
func (s *source) container(name, own string, init bool, parts map[string]bool) (c chart.Container, ok bool) {
	c = chart.Container{Name: name, Init: init, Image: own}
	if init && strings.Contains(name, "validation") {
		c.Image = "validator"
	}
	for _, row := range containers {
		image := strings.Replace(row.image, "+", own, 1)
		if _, read := parts[image]; row.name != name || image != "" && !read {
			continue
		}
		if c.Image = image; row.when != "" {
			c.When = []chart.Condition{row.when}
		}
	}
	c.System = parts[c.Image]
	return c, c.Image != ""
}

// transformation returns the name of the function that the operator applies to the DaemonSet with this name.
func (s *source) transformation(name string) (function string) {
	f := s.funcs["preProcessDaemonSet"]
	if f == nil {
		return ""
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if ok && s.text(pair.Key) == name {
			function = types(pair.Value)
		}
		return true
	})
	return function
}

// workloads returns the types of workload for which the operator sets the label on nodes. Up to v1.10, there is only
// one type.
func (s *source) workloads(label string) []string {
	labels, ok := s.values["gpuStateLabels"].(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var out []string
	isLabel := func(e ast.Expr) bool { return s.text(e.(*ast.KeyValueExpr).Key) == label }
	for _, e := range labels.Elts {
		pair := e.(*ast.KeyValueExpr)
		inner, nested := pair.Value.(*ast.CompositeLit)
		if !nested && isLabel(e) {
			out = append(out, "container")
		}
		if nested && slices.ContainsFunc(inner.Elts, isLabel) {
			out = append(out, s.text(pair.Key))
		}
	}
	return out
}
