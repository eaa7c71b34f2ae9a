package lint

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

// script is a shell script that is being checked, with its corrections.
type script struct {
	*run
	*input.Script
	file         string
	repositories map[string]string // the URLs by name, for each "helm repo add" in the script
}

// script checks a script. line is the number of lines before it in its file.
func (r *run) script(file, source string, line int) *script {
	s := &script{run: r, Script: input.ParseScript(source, line), file: file, repositories: map[string]string{}}
	r.add(file, s.Findings...)
	for _, c := range s.Commands {
		switch program(&c) {
		case "kubectl":
			s.words(c)
			s.kubectl(readFlags(c, kubectlFlags))
		case "helm":
			s.words(c)
			switch h := readFlags(c, helmFlags); h.verb {
			case "repo":
				s.helmRepo(h.positional)
			case "install", "upgrade", "template":
				s.helmInstall(h)
			}
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

func docOf(file string, d *input.Document) doc {
	return doc{file: file, data: []byte(d.Text), line: d.Line, holes: d.Holes, open: d.Open}
}

var (
	programs = map[string]string{"helm": "helm", "helm3": "helm", "kubectl": "kubectl", "oc": "kubectl"}
	// wrappers are programs that run the command in their arguments.
	wrappers       = []string{"sudo", "env", "microk8s", "k3s"}
	environmentSet = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	curly          = regexp.MustCompile(`[“”‘’]`)
	braceList      = regexp.MustCompile(`=\{[^}\s]*,[^}\s]*\}`)
	longDashes     = regexp.MustCompile(`^[-–—]*[–—][-–—]*`)
)

// program returns "helm" or "kubectl", whichever the command runs, or "" for other programs. It removes wrappers.
func program(c *input.Command) string {
	for len(c.Words) > 1 {
		first := c.Words[0].Value
		isWrapper := slices.Contains(wrappers, path.Base(first)) || environmentSet.MatchString(first)
		if !isWrapper && !strings.HasPrefix(first, "-") {
			break
		}
		c.Words = c.Words[1:]
	}
	return programs[path.Base(strings.TrimPrefix(c.Words[0].Value, "microk8s."))]
}

func (s *script) at(w input.Word, subject string) check.Finding {
	return check.Finding{File: s.file, Line: w.Line, Column: w.Col, Subject: subject}
}

// addAt adds a finding about a word, with the severity of its check. The caller may change the returned finding.
func (s *script) addAt(w input.Word, id *check.Check, subject, reason, fix string) *check.Finding {
	f := s.at(w, subject)
	f.Check, f.Severity, f.Reason, f.Fix = id, id.Severity, reason, fix
	s.add(s.file, f)
	return &s.Report.Findings[len(s.Report.Findings)-1]
}

// notJudged adds a note that the value of a word is unknown.
func (s *script) notJudged(w input.Word, subject string) {
	if strings.Contains(w.Value, input.Filled) {
		s.add(s.file, filledIn)
		return
	}
	s.addAt(w, input.Skipped, subject, "its value is unknown here; skipped", "")
}

// words reports and corrects placeholders, unquoted brace lists, curly quotes and long dashes.
func (s *script) words(c input.Command) {
	for i, w := range c.Words {
		if hole := w.Placeholder(); hole != "" {
			s.addAt(w, placeholder, hole,
				"the shell reads this as redirections, not as a placeholder", "replace it with the real value")
		}
		if braceList.MatchString(w.Unquoted()) && !w.Dynamic {
			s.addAt(w, braceExpansion, w.Raw,
				"bash expands the braces into several arguments", "write "+input.Quote(w.Raw))
			s.replace(w, w.Raw)
		}
		value, found := w.Value, longDashes.FindString(w.Value)
		if found != "" {
			value, found = "--"+value[len(found):], strings.Trim(found, "-")
			if len(value) == len("--n") {
				value = value[1:]
			}
		}
		if quote := curly.FindString(w.Unquoted()); quote != "" {
			found, value = quote, curly.ReplaceAllString(value, "")
		}
		if found != "" {
			s.addAt(w, lookalike, found, "typographic character, probably from a web page: the shell does not read it "+
				"as a dash or quote", "write "+input.Quote(value))
			s.replace(w, value)
			c.Words[i].Value = value
		}
	}
}

// namespace reports a namespace that looks like a misspelling of the operator's.
func (s *script) namespace(w input.Word) (slip bool) {
	const right = model.OperatorNamespace
	isPart := strings.HasPrefix(w.Value, right+"-") || strings.HasSuffix(w.Value, "-"+right)
	if slip = !w.Dynamic && len(w.Value) > 5 && !isPart && isSlip(w.Value, right); slip {
		s.addAt(w, namespace, "namespace "+w.Value,
			"looks like a typo of "+right+": commands with the intended namespace will not find it", "write "+right)
	}
	return slip
}

func (s *script) namespaceFlag(h *call) {
	if f := h.flag("--namespace"); f != nil && s.namespace(f.value) {
		s.setFlag(f, model.OperatorNamespace)
	}
}

// call is a command split into flags and arguments.
type call struct {
	input.Command
	verb       string // the first argument
	positional []input.Word
	flags      []*flagUse
	blanks     []input.Word // words that begin or end with an escaped space
	opaque     []input.Word // words that can expand to any arguments, such as $HELM_OPTIONS
}

type flagUse struct {
	name     string
	value    input.Word
	words    []input.Word // the words that make up the flag: one, or two if the value is separate
	settings []*model.Setting
}

// flagTable maps the names of flags that take a value to their long names.
type flagTable map[string]string

// flagsOf parses a list of long flag names, each with an optional short name after a comma.
func flagsOf(list string) flagTable {
	t := flagTable{}
	for entry := range strings.FieldsSeq(list) {
		long, short, _ := strings.Cut(entry, ",")
		t["--"+long], t["-"+cmp.Or(short, "-"+long)] = "--"+long, "--"+long
	}
	return t
}

var (
	helmFlags = flagsOf(`namespace,n version values,f set set-string set-file set-json set-literal timeout repo
		description kube-context kubeconfig post-renderer post-renderer-args name-template username password ca-file
		cert-file key-file keyring output,o labels,l history-max registry-config repository-cache repository-config
		burst-limit qps kube-apiserver kube-as-user kube-as-group kube-ca-file kube-tls-server-name kube-token
		api-versions,a kube-version output-dir show-only,s color colour content-cache`)
	kubectlFlags = flagsOf(`namespace,n context cluster user kubeconfig server,s token as request-timeout v,v
		selector,l patch,p type`)
)

// readFlags splits the words after the program into flags and arguments. The flags have their long names. The value of
// a flag is the next word, or is in the same word, as in --set=a=b or -fvalues.yaml.
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
			if w.Value = trimmed; trimmed == "" {
				continue
			}
		}
		if !strings.HasPrefix(w.Value, "-") || w.Value == "-" {
			h.positional = append(h.positional, w)
			continue
		}
		use := &flagUse{words: []input.Word{w}, value: w}
		name, value, joined := strings.Cut(w.Value, "=")
		if short := table[name[:min(2, len(name))]]; table[name] == "" && short != "" && !joined {
			name, value, joined = short, name[2:], true
		}
		use.name, use.value.Value = cmp.Or(table[name], name), value
		if table[name] != "" && !joined && i+1 < len(words) {
			i++
			use.value, use.words = words[i], append(use.words, words[i])
		}
		h.flags = append(h.flags, use)
	}
	if len(h.positional) > 0 {
		h.verb, h.positional = h.positional[0].Value, h.positional[1:]
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

func (s *script) correct(start, end int, text string) {
	s.Corrections = append(s.Corrections, input.Correction{Start: start, End: end, Text: text})
}

// corrected returns the script with all corrections. If corrections overlap, the one that starts first wins.
func (s *script) corrected() string {
	slices.SortStableFunc(s.Corrections, func(a, b input.Correction) int {
		return cmp.Or(a.Start-b.Start, b.End-a.End)
	})
	var out strings.Builder
	at := 0
	for _, c := range s.Corrections {
		if c.Start >= at && c.End >= c.Start && c.End <= len(s.Text) {
			out.WriteString(s.Text[at:c.Start] + c.Text)
			at = c.End
		}
	}
	return out.String() + s.Text[at:]
}

// replace adds a correction that replaces a word, unless the shell computes it.
func (s *script) replace(w input.Word, value string) {
	if w.Raw != "" && w.Start >= 0 && !w.Dynamic {
		s.correct(w.Start, w.Start+len(w.Raw), input.Quote(value))
	}
}

func (s *script) setFlag(f *flagUse, value string) {
	switch len(f.words) {
	case 1:
		s.replace(f.words[0], f.name+"="+value)
	case 2:
		s.replace(f.words[1], value)
	}
}

// fixFlag rewrites or removes a flag whose settings have corrections, except --set-json and unknown values.
func (s *script) fixFlag(in *installation, f *flagUse) {
	first, last, changes := f.words[0], f.words[len(f.words)-1], false
	var list []string
	for _, st := range f.settings {
		c := in.correction(st)
		changes = changes || c.Changes()
		if !c.Drop {
			list = append(list, st.Assignment(c.Rename, c.Value))
		}
	}
	if !changes || f.value.Dynamic || f.name == "--set-json" || first.Start < 0 || last.Start < first.Start {
		return
	}
	start, text := first.Start, f.name+" "+input.Quote(strings.Join(list, ","))
	if len(list) == 0 {
		start, text = len(strings.TrimRight(s.Text[:start], " \t\n\\")), ""
	}
	s.correct(start, last.Start+len(last.Raw), text)
}
