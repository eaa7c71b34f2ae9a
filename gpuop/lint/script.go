package lint

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	words "github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A script is a text of shell commands, with the edits that correct it.
type script struct {
	*run
	*input.Script
	file string
}

// script judges a script that begins below so many lines of its file.
func (r *run) script(file, source string, line int) *script {
	s := &script{run: r, Script: input.ParseScript(source, line), file: file}
	r.add(file, s.Findings...)
	for _, c := range s.Commands {
		name := program(&c)
		if name == "" {
			continue
		}
		s.words(c)
		if name == "kubectl" {
			s.kubectl(c)
		} else {
			s.helm(c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		if d := s.Files[name]; !d.Judged {
			written := !strings.HasSuffix(name, ".yaml") && !strings.HasSuffix(name, ".yml")
			r.parse(doc{file: file, data: []byte(d.Text), line: d.Line, written: written})
		}
	}
	return s
}

// programs are helm and kubectl by the names that distributions and articles give them.
var programs = map[string]string{"helm": "helm", "helm3": "helm", "kubectl": "kubectl", "oc": "kubectl"}

// wrappers are programs that run the command after them.
var wrappers = []string{"sudo", "env", "microk8s", "k3s"}

var environmentSet = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// program finds out which program a command runs behind sudo and its like, and drops these words.
func program(c *input.Command) string {
	for len(c.Words) > 1 {
		first := c.Words[0].Value
		if !slices.Contains(wrappers, path.Base(first)) && !strings.HasPrefix(first, "-") && !environmentSet.MatchString(first) {
			break
		}
		c.Namespaced = c.Namespaced || strings.HasPrefix(first, input.HelmNamespace+"=")
		c.Words = c.Words[1:]
	}
	return programs[path.Base(strings.TrimPrefix(c.Words[0].Value, "microk8s."))]
}

// at reports a mistake at a word.
func (s *script) at(w input.Word, id report.ID, severity report.State, subject, reason, fix string) {
	s.add(s.file, report.Row{ID: id, State: severity, Line: w.Line, Column: w.Col, Subject: subject, Reason: reason, Fix: fix})
}

// notJudged notes that the value of a word is not known.
func (s *script) notJudged(w input.Word, subject string) {
	if strings.Contains(w.Value, input.Filled) {
		s.add(s.file, filledIn)
		return
	}
	s.at(w, "not-judged", report.Note, subject, "what it holds is not known here, so it is not judged", "")
}

var (
	quoted     = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	curly      = regexp.MustCompile(`[“”‘’]`)
	braceList  = regexp.MustCompile(`=\{[^}\s]*,[^}\s]*\}`)
	longDashes = regexp.MustCompile(`^[-–—]*[–—][-–—]*`)
)

// words reports the marks of a web page in a command, and judges it as it is meant: placeholders,
// curly quotes and long dashes.
func (s *script) words(c input.Command) {
	for i, w := range c.Words {
		if w.Placeholder != "" {
			s.at(w, "placeholder", report.Failed, w.Placeholder, "to the shell this is a file to read and one to write, not a name to fill in",
				"write what it stands for")
		}
		if braceList.MatchString(quoted.ReplaceAllString(w.Raw, "")) && !w.Dynamic {
			s.at(w, "brace-expansion", report.Failed, w.Raw, "bash makes several arguments of the braces", "write "+input.Quote(w.Raw))
			s.replace(w, w.Raw)
		}
		value, found := w.Value, longDashes.FindString(w.Value)
		if found != "" {
			value, found = "--"+value[len(found):], strings.Trim(found, "-")
			if helmFlags.long[value[1:]] != "" {
				value = value[1:]
			}
		}
		if quote := curly.FindString(quoted.ReplaceAllString(w.Raw, "")); quote != "" {
			found, value = quote, curly.ReplaceAllString(value, "")
		}
		if found != "" {
			s.at(w, "lookalike", report.Failed, found, "a character that a web page put in the place of an ASCII one; the shell does not know it", "write "+input.Quote(value))
			c.Words[i].Value = value
			if !w.Dynamic {
				s.replace(w, value)
			}
		}
	}
}

// takeVerb takes the first argument off: what the program is to do.
func (h *call) takeVerb() string {
	if len(h.positional) == 0 {
		return ""
	}
	w := h.positional[0]
	h.positional = h.positional[1:]
	return w.Value
}

// namespace reports a word that looks like a slip for the operator's namespace.
func (s *script) namespace(w input.Word, subject string) (slip bool) {
	const right = model.OperatorNamespace
	if w.Dynamic || len(w.Value) < 6 || strings.HasPrefix(w.Value, right+"-") || strings.HasSuffix(w.Value, "-"+right) || !isSlip(w.Value, right) {
		return false
	}
	s.at(w, "namespace", report.Failed, subject, "\""+w.Value+"\" looks like a slip for "+right+": everything else that names the namespace misses it", "write "+right)
	return true
}

// A call is a command with its words sorted.
type call struct {
	input.Command
	verb       string
	positional []input.Word
	flags      []*flagUse
	blanks     []input.Word
	// opaque are words that may be any arguments: $HELM_OPTIONS.
	opaque []input.Word
}

// A flagUse is one flag of a command with its value.
type flagUse struct {
	name  string
	value input.Word
	// words are the flag as it is written.
	words    []input.Word
	settings []*model.Setting
}

// A flagTable has the long names of a program's flags by all names, and those that take a value.
type flagTable struct {
	long  map[string]string
	takes map[string]bool
}

// flagsOf reads tables of long names, each with the short one behind a comma: the flags with a value, and the others.
func flagsOf(values, bools string) flagTable {
	t := flagTable{long: map[string]string{}, takes: map[string]bool{}}
	for i, table := range []string{values, bools} {
		for entry := range strings.FieldsSeq(table) {
			long, short, hasShort := strings.Cut(entry, ",")
			t.long["--"+long], t.takes["--"+long] = "--"+long, i == 0
			if hasShort {
				t.long["-"+short] = "--" + long
			}
		}
	}
	return t
}

// find reads the long name of a flag, and its value where that is joined to it: --set=a=b, -fvalues.yaml.
func (t flagTable) find(text string) (name, value string, joined bool) {
	name, value, joined = strings.Cut(text, "=")
	if long := t.long[name]; long != "" {
		return long, value, joined
	}
	if long := t.long[name[:min(2, len(name))]]; t.takes[long] && !joined {
		return long, name[2:], true
	}
	return name, value, joined
}

// readFlags sorts the words behind the program.
func readFlags(c input.Command, table flagTable) *call {
	h := &call{Command: c}
	words := c.Words[1:]
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w.Splits {
			h.opaque = append(h.opaque, w)
			continue
		}
		if trimmed := strings.TrimSpace(w.Value); !w.Dynamic && trimmed != w.Value && strings.Contains(w.Raw, `\`) {
			h.blanks = append(h.blanks, w)
			if trimmed == "" {
				continue
			}
			w.Value = trimmed
		}
		if !strings.HasPrefix(w.Value, "-") || w.Value == "-" {
			h.positional = append(h.positional, w)
			continue
		}
		name, value, joined := table.find(w.Value)
		use := &flagUse{words: []input.Word{w}, name: name, value: w}
		use.value.Value, use.value.Raw = value, input.Quote(value)
		if table.takes[name] && !joined && i+1 < len(words) {
			i++
			use.value = words[i]
			use.words = append(use.words, words[i])
		}
		h.flags = append(h.flags, use)
	}
	return h
}

// flag returns the last use of the flag, or nil.
func (h *call) flag(name string) *flagUse {
	for _, f := range slices.Backward(h.flags) {
		if f.name == name {
			return f
		}
	}
	return nil
}

// isSlip reports whether a name looks like a slip for another. A name that differs in a whole word is one of its own:
// spark-operator, tigera-operator, npu-operator.
func isSlip(name, known string) bool {
	return name != known && words.Distance(name, known, 2) <= 2 && !ownWord(name, known)
}

// ownWord reports whether names differ in the first word alone, by more than a doubled or missing letter.
func ownWord(name, known string) bool {
	first, rest, _ := strings.Cut(name, "-")
	want, wantRest, _ := strings.Cut(known, "-")
	if rest != wantRest || first == want {
		return false
	}
	return words.Distance(first, want, 1) > 1 || len(first) == len(want)
}

// labelPrefix begins the labels of NVIDIA's, and writable are those that people set.
const labelPrefix = "nvidia.com/"

var writable = strings.Fields(`mig.config device-plugin.config gpu.workload.config vgpu.config gpu.deploy.operands cc.mode gpu-driver-upgrade-enabled
	gpu-driver-upgrade-state gpu-driver-upgrade.skip`)

// nearestLabel returns the node label that another looks like a slip for, or "".
func nearestLabel(label string) string {
	prefix, name, _ := strings.Cut(label, "/")
	near := report.Nearest(name, writable)
	if near == "" || prefix != "nvidia" && report.Nearest(prefix, []string{"nvidia.com"}) == "" {
		return ""
	}
	return labelPrefix + near
}
