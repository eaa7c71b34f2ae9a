package check

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Secrets are the values that no output may contain, longest first. The zero value is empty.
type Secrets []string

// secretKeys matches names ending in "key" that are secrets. Other keys are often names of entries.
const secretKeys = `(api|access|private|ssh|license|auth|signing|encryption|ngc|secret|tls\.)key`

// Names are in lower case without hyphens and underscores, except for variableName.
var (
	secretName = regexp.MustCompile(`(passw|passphrase|token|secret|credential|dockerconfigjson|dockercfg|` +
		`clientkeydata|` + secretKeys + `)[^.]*$|(^|[./])(auth|authorization|sig|pass)$|pwd$`)
	// variableName matches environment variables that end in an abbreviation, such as REGISTRY_PASS or BASIC_AUTH.
	variableName = regexp.MustCompile(`(?i)([_-](pass|pwd|pw|auth|pat)|(^|[_-])tok)$`)
	// aboutSecret matches settings about a secret, such as its file or its lifetime. Their values are not secrets.
	aboutSecret = regexp.MustCompile(`(pullsecrets?|existingsecret|fromsecret|name|ref|env|file|path|type|url|uri|` +
		`endpoint|ttl|seconds|expiry|expiration|ids?|mount|mode|keys?|audience|enabled|create|namespace|stdin|` +
		`generator|operator|provider|store|class|version|method|scan|scanner|scanning)$`)
	certainName = regexp.MustCompile(secretKeys + `$`)
	// harmless matches keys inside a secret whose values are not secret.
	harmless = regexp.MustCompile(`^(user|server|host|registry|email|kind|behavior|files|envs|options)$`)
)

// IsSecretName reports whether a key, variable or flag with this name holds a secret. Only the last name of a path
// matters, except that tls.key is always a secret.
func IsSecretName(name string) bool {
	plain := folded(strings.TrimRight(name, ".]"))
	return variableName.MatchString(name) ||
		secretName.MatchString(plain) && (certainName.MatchString(plain) || !aboutSecret.MatchString(plain))
}

// These are parts of patterns. argument also matches what follows an equals sign.
const (
	quoted    = `"(?:[^"\\\n]|\\.)*"|'[^'\n]*'`
	argument  = `(` + quoted + `|[^\s'"|;&]+)`
	arguments = `(?:[^\n;|&\\]|\\\n|\\.)*`
	// secretWords are the needs of a named place. The name of a secret contains at least one of them.
	secretWords = "pass pwd token secret credential key auth dockerc sig pat pw tok"
)

// place describes where a text can contain a secret. The last group that matches is the secret.
type place struct {
	// needs are words in lower case. The place is only searched if the text contains one of them.
	needs []string
	named bool // the first group that matches must be the name of a secret
	// scope matches the parts of the text to search; nil means all of the text.
	scope, pattern *regexp.Regexp
}

func within(scope, needs, pattern string) place {
	p := in(needs, pattern)
	p.scope = regexp.MustCompile(scope)
	return p
}

func in(needs, pattern string) place {
	return place{strings.Fields(needs), needs == secretWords, nil, regexp.MustCompile(pattern)}
}

var places = []place{
	in("private", `(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END`),
	in("bearer basic authorization", `(?i)\bbearer ([a-z0-9._~+/=-]{8,})|\bbasic ([a-z0-9+/]{16,}={0,2})|`+
		`\bauthorization["']?[:=][ \t]*["']?(?:basic|token|digest)[ \t]+([^\s"',;]+)`),
	in("hook", `://[^\s/"']*hooks?\.[^\s/"']+/([^\s"'?]+)`),
	in("nvapi- gh glpat- xox hf_ sk- eyj", `\b((?:nvapi-|gh[opsu]_|github_pat_|glpat-|xox[abprs]-|hf_|sk-)`+
		`[A-Za-z0-9_-]{16,}|eyJ[\w-]{8,}\.eyJ[\w-]+\.[\w-]+)`),
	in("://", `://(?:[^\s/@:'"]*:([^\s/@'"]+)|([^\s/@:'"]{16,}))@`),
	// registries without a scheme: user:password@registry.example.com/path; the host needs a dot or a port, because
	// image:tag@sha256:… contains no password
	in("@", `(?:^|[\s"'=,])[^\s/@:'"=,]+:([^\s/@:'"]+)@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+|:[0-9]{1,5}(?:/|$))`),
	// flags: --password x, --api-key=x, --docker-password "x", and in a list: ["--api-key", "x"]
	in(secretWords, `--([a-zA-Z][\w.-]*)(?:(?:=|[ \t]+(?:\\\n[ \t]*)?)(`+quoted+`|[^\s'"|;&-][^\s'"|;&]*)|`+
		`\\?["']?[ \t]*,[ \t]*\\?["']?([^\s"',\\\]]+))`),
	// assignments of shells, helm, Java and URLs: X_TOKEN=x, --set a.password=x, ?sig=x
	in(secretWords, `([A-Za-z_.][\w.\[\]/-]*)=(`+quoted+`|(?:\\.|[^\s'",;&|})])+)`),
	in(secretWords, `"([A-Za-z_.][\w.-]*)=([^"\n]+)"|'([A-Za-z_.][\w.-]*)=([^'\n]+)'`),
	// mappings of YAML, JSON and HCL, on a line of their own or inside braces
	in(secretWords, `(?m)^[ \t]*(?:- )?["']?([A-Za-z_.][\w.-]*)["']?[ \t]*[:=][ \t]+`+
		`("[^"\n]*"|'[^'\n]*'|[^\s"'|>&*!#{\[][^\n#]*)`),
	in(secretWords, `(?:^|[\s,{(\[])\\?["']?([A-Za-z_.][\w.-]*)\\?["']?[ \t]*(?:[ \t]=[ \t]*(`+quoted+`)|`+
		`:[ \t]*(`+quoted+`|\\"[^"\n]*\\"|[^\s"',;|>&*!#{}\[\]()\\]+))`),
	// environment variables as Kubernetes writes them
	in(secretWords, `\bname\\?["']?\s*[:=]\s*\\?["']?([\w.-]+)\\?["']?\s*,?\s*\\?["']?value\\?["']?\s*[:=]\s*`+
		`\\?("[^"\n]*"|'[^'\n]*'|[^\s,}#"'\\]+)`),
	// passwords in the arguments or the standard input of commands
	within(`\b(?:login|sshpass|az|zip|mysql\w*|mariadb)\b`+arguments, "-p", `(?:^|[ \t])-[pP][ \t=]*`+argument),
	within(`\bhttps?\b[ \t]`+arguments, "-a", `[ \t]-a[ \t]+["']?[^\s:'"=/]+:([^\s'"]+)`),
	in("-u --user creds --proxy-user",
		`(?:^|[ \t])(?:-[uU]|--(?:proxy-)?user|--(?:[a-z]+-)?creds)[ \t=]*["']?[^\s:'"=/]+:([^\s'"]+)`),
	in("pass:", `\bpass:`+argument),
	in("echo printf", `\b(?:echo|printf)(?:[ \t]+-[a-zA-Z]+|[ \t]+["']?%s(?:\\n)?["']?)*[ \t]+`+argument+
		`[ \t]*\|[^\n]*(?:stdin|login|secret|passw|token|base64|htpasswd)`),
	in("<<<", `(?:stdin|login|secret|passw|token|base64)[^\n]*<<<[ \t]*`+argument),
	in("stdin", `-stdin[^\n<]*<<-?[ \t]*["']?\w+["']?[^\n]*\n[ \t]*([^\n]+)`),
	in(secretWords, `\bread\b[^\n<;|&]*?[ \t]([A-Za-z_]\w*)[ \t]*<<<[ \t]*`+argument),
	// kubectl create secret --from-literal, whatever the key is called
	within(`\bcreate[\s\\]+secret\b`+arguments, "literal",
		`--from-literal[ \t=]+(?:[^\s='"]+=`+argument+`|"[^="\n]+=([^"\n]*)"|'[^='\n]+=([^'\n]*)')`),
}

// secretElement matches the name of a variable in Helm flags: driver.env[0].name=TOKEN.
var secretElement = regexp.MustCompile(`([\w.-]+\[[0-9]+\]\.)name=["']?([\w.-]+)`)

// find returns the bounds of the secrets in the text.
func find(text string) (all [][]int) {
	lower := strings.ToLower(text)
	for _, p := range places {
		needed := func(word string) bool { return strings.Contains(lower, word) }
		if !slices.ContainsFunc(p.needs, needed) {
			continue
		}
		parts := [][]int{{0, len(text)}}
		if p.scope != nil {
			parts = p.scope.FindAllStringIndex(text, -1)
		}
		for _, part := range parts {
			all = append(all, p.find(text[:part[1]], part[0])...)
		}
	}
	for _, m := range secretElement.FindAllStringSubmatch(text, -1) {
		if IsSecretName(m[2]) {
			value := in("", regexp.QuoteMeta(m[1])+`value=((?:\\.|[^\s,"'])+)`)
			all = append(all, value.find(text, 0)...)
		}
	}
	return all
}

// find returns the bounds of the secrets at this place, from the index at on. If the name before a value is not the
// name of a secret, the search continues after the name.
func (p *place) find(text string, at int) (all [][]int) {
	for {
		m := p.pattern.FindStringSubmatchIndex(text[at:])
		if m == nil {
			return all
		}
		groups := slices.DeleteFunc(slices.Collect(slices.Chunk(m[2:], 2)), func(g []int) bool { return g[0] < 0 })
		name, secret := groups[0], groups[len(groups)-1]
		if p.named && !IsSecretName(text[at+name[0]:at+name[1]]) {
			at += name[1]
			continue
		}
		start, end := at+secret[0], at+secret[1]
		at = max(end, at+1)
		for end-start >= 2 && strings.Contains(`"'`, text[start:start+1]) && text[end-1] == text[start] {
			start, end = start+1, end-1
		}
		value := strings.TrimSpace(text[start:end])
		if !notSecret.MatchString(value) && (p.named || !shortNumber.MatchString(value)) {
			all = append(all, []int{start, end})
		}
	}
}

var (
	// notSecret matches values that are not secrets: placeholders, booleans and ordinary words.
	notSecret = regexp.MustCompile(`(?i)^(|\\?\$[{(]?[a-z_@].*|%.*%|<.*>|\*+|.*\{\{.*|` +
		`true|false|yes|no|null|none|nil|not|is|a|an|the|\||>|[|>][-+]|"|'|\\|,)$`)
	// shortNumber matches numbers that are secrets only behind the name of a secret. Elsewhere they mean something
	// else, such as the user and group in -u 1000:1000.
	shortNumber = regexp.MustCompile(`^[0-9]{1,6}$`)
)

var (
	comment = regexp.MustCompile(`^[ \t]*#`)
	words   = regexp.MustCompile(`^[a-z]{1,12} [a-z]`)
)

// Learn adds the values that are secrets according to their names or their places in a text. Words of a sentence in a
// comment are not secrets.
func (s *Secrets) Learn(text string) {
	for _, at := range find(text) {
		line := text[strings.LastIndexByte(text[:at[0]], '\n')+1 : at[0]]
		if !words.MatchString(text[at[0]:]) || !comment.MatchString(line) {
			s.Add(text[at[0]:at[1]])
		}
	}
}

// maxDocument limits the size of the texts that LearnYAML parses, in bytes.
const maxDocument = 8 << 20

// LearnYAML adds the secrets in YAML or JSON documents, and those that Learn finds in their text. Documents after an
// invalid one are only searched as text.
func (s *Secrets) LearnYAML(data []byte) {
	s.Learn(string(data))
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); len(data) <= maxDocument; {
		var tree any
		if decoder.Decode(&tree) != nil {
			return
		}
		s.LearnTree(tree)
	}
}

// LearnTree adds the secrets in decoded YAML or JSON: the data of Secrets, the literals of Kustomize's
// secretGenerators, the values of keys, variables and flags with the name of a secret, and what Learn finds in each
// string.
func (s *Secrets) LearnTree(tree any) {
	mapTree(tree, false, func(value any, isSecret bool) any {
		text, isText := value.(string)
		if !isText {
			data, _ := json.Marshal(value)
			text = string(data)
		}
		s.Learn(text)
		if isSecret {
			_, literal, _ := strings.Cut(text, "=") // in a secretGenerator
			s.Add(text)
			s.Add(strings.Trim(literal, `"'`))
			if decoded, err := base64.StdEncoding.DecodeString(text); err == nil && utf8.Valid(decoded) {
				s.Add(string(decoded))
			}
		}
		return value
	})
}

// MaskTree returns a copy of decoded YAML or JSON in which *** replaces the secrets that LearnTree finds by their
// names. It also replaces short numbers and booleans, which LearnTree ignores because they occur elsewhere too.
func MaskTree(tree any) any {
	return mapTree(tree, false, func(value any, isSecret bool) any {
		if isSecret && value != nil && value != "" {
			return "***"
		}
		return value
	})
}

// mapTree returns a copy of decoded YAML or JSON in which replace has been applied to every value that is not a list or
// a mapping. A value is secret if its key is, or the flag before it in a list of arguments.
func mapTree(tree any, isSecret bool, replace func(value any, isSecret bool) any) any {
	switch tree := tree.(type) {
	case []any:
		list, afterFlag := make([]any, len(tree)), false
		for i, item := range tree {
			list[i] = mapTree(item, isSecret || afterFlag, replace)
			text, _ := item.(string)
			afterFlag = strings.HasPrefix(text, "--") && IsSecretName(text)
		}
		return list
	case map[string]any:
		copied := map[string]any{}
		name, _ := tree["name"].(string)
		for key, value := range tree {
			plain := folded(key)
			copied[key] = mapTree(value, IsSecretName(key) || key == "value" && IsSecretName(name) ||
				tree["kind"] == "Secret" && (key == "data" || key == "stringData") || key == "secretGenerator" ||
				isSecret && !harmless.MatchString(plain) && !aboutSecret.MatchString(plain), replace)
		}
		return copied
	}
	return replace(tree, isSecret)
}

// Add adds a secret. If it has several lines, each line of at least eight bytes is added too. Add ignores placeholders,
// booleans, short numbers, a few ordinary words, and values of fewer than four bytes.
func (s *Secrets) Add(secret string) {
	secret = strings.TrimSpace(secret)
	lines := slices.DeleteFunc(strings.Split(secret, "\n"), func(line string) bool { return len(line) < 8 })
	for _, text := range append(lines, secret, strings.Trim(strconv.Quote(secret), `"`)) {
		text = strings.TrimSpace(text)
		isSecret := len(text) >= 4 && !notSecret.MatchString(text) && !shortNumber.MatchString(text)
		if isSecret && !slices.Contains(*s, text) {
			*s = append(*s, text)
		}
	}
	slices.SortStableFunc(*s, func(a, b string) int { return len(b) - len(a) })
}

// Replace replaces the secrets in a text with ***.
func (s Secrets) Replace(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// Mask replaces the secrets in a text with ***, as well as those that the function Mask finds.
func (s Secrets) Mask(text string) string { return Mask(s.Replace(text)) }

// Mask replaces the values that are secrets according to their names or places in the text with ***.
func Mask(text string) string {
	all := find(text)
	slices.SortFunc(all, slices.Compare)
	masked, at := "", 0
	for _, secret := range all {
		if secret[0] >= at {
			masked += text[at:secret[0]] + "***"
		}
		at = max(at, secret[1])
	}
	return masked + text[at:]
}

// Mask masks the secrets in the title and in all findings. It removes source lines that contain a secret.
func (r *Report) Mask(s Secrets) {
	r.Title = s.Mask(r.Title)
	for i := range r.Findings {
		f, e := &r.Findings[i], &r.Findings[i].Evidence
		for _, text := range []*string{&f.Subject, &f.Reason, &f.Together, &f.Fix, &e.Object, &e.Text} {
			*text = s.Mask(*text)
		}
		if s.Mask(f.Text) != f.Text {
			f.Text = "" // the caret below a masked line would be at the wrong place
		}
	}
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// ReplaceJSON replaces the secrets in the strings of a JSON document with ***. A string that equals keep, ignoring
// trailing newlines, is left unchanged.
func (s Secrets) ReplaceJSON(data []byte, keep string) []byte {
	return jsonString.ReplaceAllFunc(data, func(literal []byte) []byte {
		var text string
		err := json.Unmarshal(literal, &text)
		masked := s.Replace(text)
		if err != nil || masked == text || strings.TrimRight(text, "\n") == strings.TrimRight(keep, "\n") {
			return literal
		}
		var out bytes.Buffer
		_ = WriteJSON(&out, masked) // encoding a string cannot fail
		return bytes.TrimSpace(out.Bytes())
	})
}
