package lint

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	words "github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// script is a shell script that is being checked, with its corrections.
type script struct {
	*run
	*input.Script
	file string
	// repositories maps repository names to URLs, for each "helm repo add" in the script.
	repositories map[string]string
}

// script checks a script. line is the number of lines before it in its file.
func (r *run) script(file, source string, line int) *script {
	s := &script{run: r, Script: input.ParseScript(source, line), file: file, repositories: map[string]string{}}
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
			text := docOf(file, d)
			text.written = !strings.HasSuffix(name, ".yaml") && !strings.HasSuffix(name, ".yml")
			r.parse(text)
		}
	}
	return s
}

// docOf returns a text in a script as a document.
func docOf(file string, d *input.Document) doc {
	return doc{file: file, data: []byte(d.Text), line: d.Line, holes: d.Holes, open: d.Open}
}

// programs maps the name of an executable to helm or kubectl.
var programs = map[string]string{"helm": "helm", "helm3": "helm", "kubectl": "kubectl", "oc": "kubectl"}

// wrappers are programs that run the command in their arguments.
var wrappers = []string{"sudo", "env", "microk8s", "k3s"}

var environmentSet = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// program returns "helm" or "kubectl", whichever the command runs, or "" for other programs. It removes wrappers such
// as sudo.
func program(c *input.Command) string {
	for len(c.Words) > 1 {
		first := c.Words[0].Value
		isWrapper := slices.Contains(wrappers, path.Base(first)) || environmentSet.MatchString(first)
		if !isWrapper && !strings.HasPrefix(first, "-") {
			break
		}
		c.Namespaced = c.Namespaced || strings.HasPrefix(first, input.HelmNamespace+"=")
		c.Words = c.Words[1:]
	}
	return programs[path.Base(strings.TrimPrefix(c.Words[0].Value, "microk8s."))]
}

// addAt adds a finding about a word, with the severity of its check.
func (s *script) addAt(w input.Word, id *check.Check, subject, reason, fix string) {
	s.add(s.file, check.Finding{
		Check: id, Severity: id.Severity, Line: w.Line, Column: w.Col, Subject: subject, Reason: reason, Fix: fix,
	})
}

// notJudged adds a note that the value of a word is unknown.
func (s *script) notJudged(w input.Word, subject string) {
	if strings.Contains(w.Value, input.Filled) {
		s.add(s.file, filledIn)
		return
	}
	s.addAt(w, input.Skipped, subject, "its value is unknown here; skipped", "")
}

var (
	quoted     = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	curly      = regexp.MustCompile(`[“”‘’]`)
	braceList  = regexp.MustCompile(`=\{[^}\s]*,[^}\s]*\}`)
	longDashes = regexp.MustCompile(`^[-–—]*[–—][-–—]*`)
)

// words reports mistakes in single words, and corrects them if possible: placeholders, unquoted brace lists, curly
// quotes and long dashes.
func (s *script) words(c input.Command) {
	for i, w := range c.Words {
		if w.Placeholder != "" {
			s.addAt(w, placeholder, w.Placeholder,
				"the shell reads this as redirections, not as a placeholder", "replace it with the real value")
		}
		if braceList.MatchString(quoted.ReplaceAllString(w.Raw, "")) && !w.Dynamic {
			s.addAt(w, braceExpansion, w.Raw,
				"bash expands the braces into several arguments", "write "+input.Quote(w.Raw))
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
			const reason = "typographic character, probably from a web page: " +
				"the shell does not read it as a dash or quote"
			s.addAt(w, lookalike, found, reason, "write "+input.Quote(value))
			c.Words[i].Value = value
			if !w.Dynamic {
				s.replace(w, value)
			}
		}
	}
}

// takeVerb removes and returns the first argument.
func (h *call) takeVerb() string {
	if len(h.positional) == 0 {
		return ""
	}
	w := h.positional[0]
	h.positional = h.positional[1:]
	return w.Value
}

// namespace reports a namespace that looks like a misspelling of the operator's.
func (s *script) namespace(w input.Word, subject string) (slip bool) {
	const right = model.OperatorNamespace
	isPart := strings.HasPrefix(w.Value, right+"-") || strings.HasSuffix(w.Value, "-"+right)
	if w.Dynamic || len(w.Value) < 6 || isPart || !isSlip(w.Value, right) {
		return false
	}
	const reason = `"%s" looks like a typo of %s: commands with the intended namespace will not find it`
	s.addAt(w, namespace, subject, fmt.Sprintf(reason, w.Value, right), "write "+right)
	return true
}

// call is a command split into flags and arguments.
type call struct {
	input.Command
	verb       string
	positional []input.Word
	flags      []*flagUse
	blanks     []input.Word
	// opaque are words that can expand to any arguments, such as $HELM_OPTIONS.
	opaque []input.Word
}

// flagUse is a flag of a command with its value.
type flagUse struct {
	name  string
	value input.Word
	// words are the words that make up the flag: one, or two if the value is separate.
	words    []input.Word
	settings []*model.Setting
}

// flagTable describes the flags of a program. long maps every name to the long name. takes has the long names of flags
// with a value.
type flagTable struct {
	long  map[string]string
	takes map[string]bool
}

// flagsOf parses lists of long flag names, each with an optional short name after a comma. values lists the flags that
// take a value.
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

// find returns the long name of a flag. If the flag contains a value, as in --set=a=b or -fvalues.yaml, joined is true.
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

// readFlags splits the words after the program into flags and arguments.
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

// flag returns the last use of a flag, or nil.
func (h *call) flag(name string) *flagUse {
	for _, f := range slices.Backward(h.flags) {
		if f.name == name {
			return f
		}
	}
	return nil
}

// isSlip reports whether name looks like a misspelling of known. A name whose first word is clearly a different word is
// not a misspelling: spark-operator, tigera-operator and npu-operator are not typos of gpu-operator.
func isSlip(name, known string) bool {
	return name != known && words.Distance(name, known, 2) <= 2 && !ownWord(name, known)
}

// ownWord reports whether only the first words of the names differ, and neither looks like a typo of the other. Words
// of the same length count as different words.
func ownWord(name, known string) bool {
	first, rest, _ := strings.Cut(name, "-")
	want, wantRest, _ := strings.Cut(known, "-")
	if rest != wantRest || first == want {
		return false
	}
	return words.Distance(first, want, 1) > 1 || len(first) == len(want)
}

// labelPrefix is the prefix of NVIDIA's labels. writable lists the labels that users set.
const labelPrefix = "nvidia.com/"

var writable = strings.Fields(`mig.config device-plugin.config gpu.workload.config vgpu.config gpu.deploy.operands
	cc.mode gpu-driver-upgrade-enabled gpu-driver-upgrade-state gpu-driver-upgrade.skip`)

// nearestLabel returns the node label that was probably meant, or "".
func nearestLabel(label string) string {
	prefix, name, _ := strings.Cut(label, "/")
	near := check.Nearest(name, writable)
	if near == "" || prefix != "nvidia" && check.Nearest(prefix, []string{"nvidia.com"}) == "" {
		return ""
	}
	return labelPrefix + near
}
