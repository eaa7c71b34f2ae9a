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

var (
	// secretName matches the normalized name of a secret: lower case, without hyphens and underscores.
	secretName = regexp.MustCompile(`passw|passphrase|token|secret|credential|` +
		`(api|access|private|ssh|license|auth|signing|encryption|ngc|tls\.)key|` +
		`dockerconfigjson|dockercfg|clientkeydata|(^|[._/])(auth|authorization|sig|pwd|pass)$|[a-z](passwd|pwd)$`)
	// variableName matches environment variables that end in an abbreviation for a secret, such as REGISTRY_PASS,
	// DB_PWD or BASIC_AUTH.
	variableName = regexp.MustCompile(`(?i)(?:[_-](?:pass|pwd|pw|auth|pat)|(?:^|[_-])tok)$`)
	// aboutSecret matches the normalized names of settings about a secret, such as its file or its lifetime. Their
	// values are not secrets.
	aboutSecret = regexp.MustCompile(`(pullsecrets?|existingsecret|fromsecret|` +
		`(name|ref|env|file|path|type|url|uri|endpoint|ttl|seconds|expiry|expiration|id|ids|mount|mode|key|keys|` +
		`audience|enabled|create|namespace|stdin|generator|operator|username|provider|store|class|version|method|` +
		`scan|scanner|scanning))$`)
	// keepsKey matches names that end in "key" and are secrets, although aboutSecret matches them.
	keepsKey = regexp.MustCompile(`(api|access|private|ssh|license|auth|signing|encryption|ngc|secret|tls\.)key$`)
)

// IsSecretName reports whether a key, variable or flag with this name holds a secret. Only the last name of a path
// matters, except that tls.key is always a secret.
func IsSecretName(name string) bool {
	if variableName.MatchString(name) {
		return true
	}
	last := name[strings.LastIndexByte(strings.TrimRight(name, ".]"), '.')+1:]
	if strings.HasPrefix(last, "key") && strings.HasSuffix(name, "tls.key") || name == "tls.key" {
		return true
	}
	plain := strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(last))
	return secretName.MatchString(plain) && (keepsKey.MatchString(plain) || !aboutSecret.MatchString(plain))
}

// shellValue matches an argument of a command, or the value after an equals sign.
const shellValue = `("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s'"|;&]+)`

// arguments matches the arguments of a command.
const arguments = `(?:[^\n;|&\\]|\\\n|\\.)*`

// place describes where a text can contain a secret. The last group of pattern matches the secret. If there are two
// groups, the text of the first must be the name of a secret.
type place struct {
	// scope matches the parts of the text to search; nil means all of the text.
	scope *regexp.Regexp
	// needs are words in lower case. The place is only searched if the text contains one of them.
	needs   []string
	pattern *regexp.Regexp
}

// secretWords lists words in lower case. The name of a secret contains at least one of them.
var secretWords = []string{"pass", "pwd", "token", "secret", "credential", "key", "auth", "dockerc", "sig", "pat", "pw",
	"tok"}

var places = []place{
	{nil, []string{"private key"}, regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END`)},
	{nil, []string{"bearer "}, regexp.MustCompile(`(?i)\bBearer ([A-Za-z0-9._~+/=-]{8,})`)},
	{nil, []string{"basic "}, regexp.MustCompile(`\b[Bb]asic ([A-Za-z0-9+/]{16,}={0,2})`)},
	{nil, []string{"hook"}, regexp.MustCompile(`://[^\s/"']*hooks?\.[^\s/"']+/([^\s"'?]+)`)},
	{nil, []string{"authorization"},
		regexp.MustCompile(`(?i)\bauthorization["']?[:=][ \t]*["']?(?:basic|token|digest)[ \t]+([^\s"',;]+)`)},
	{nil, []string{"nvapi-", "gh", "glpat-", "xox", "hf_", "sk-", "eyj"}, regexp.MustCompile(`\b(` +
		`(?:nvapi-|gh[opsu]_|github_pat_|glpat-|xox[abprs]-|hf_|sk-)[A-Za-z0-9_-]{16,}|` +
		`eyJ[\w-]{8,}\.eyJ[\w-]+\.[\w-]+)`)},
	{nil, []string{"://"}, regexp.MustCompile(`://[^\s/@:'"]*:([^\s/@'"]+)@`)},
	{nil, []string{"://"}, regexp.MustCompile(`://([^\s/@:'"]{16,})@`)},
	// registries without a scheme: user:password@registry.example.com/path; the host needs a dot or a port, because
	// image:tag@sha256:… contains no password
	{nil, []string{"@"},
		regexp.MustCompile(`(?:^|[\s"'=,])[^\s/@:'"=,]+:([^\s/@:'"]+)@` +
			`[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+|:[0-9]{1,5}(?:/|$))`)},
	// flags: --password x, --api-key=x, --docker-password "x"
	{nil, secretWords,
		regexp.MustCompile(`--([a-zA-Z][\w.-]*)(?:=|[ \t]+(?:\\\n[ \t]*)?)` +
			`("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s'"|;&-][^\s'"|;&]*)`)},
	// flags in a list: ["--api-key", "x"]
	{nil, secretWords, regexp.MustCompile(`--([a-zA-Z][\w.-]*)\\?["']?[ \t]*,[ \t]*\\?["']?([^\s"',\\\]]+)`)},
	// assignments of shells, helm, Java and URLs: X_TOKEN=x, --set a.password=x, ?sig=x
	{nil, secretWords,
		regexp.MustCompile(`([A-Za-z_.][\w.\[\]/-]*)=("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|(?:\\.|[^\s'",;&|})])+)`)},
	{nil, secretWords, regexp.MustCompile(`"([A-Za-z_.][\w.-]*)=([^"\n]+)"`)},
	{nil, secretWords, regexp.MustCompile(`'([A-Za-z_.][\w.-]*)=([^'\n]+)'`)},
	// mappings of YAML, JSON and HCL, on a line of their own or inside braces
	{nil, secretWords, regexp.MustCompile(`[{,(][ \t]*["']?([A-Za-z_][\w.-]*)["']?[ \t]+=[ \t]*"((?:[^"\\\n]|\\.)*)"`)},
	{nil, secretWords,
		regexp.MustCompile(`(?m)^[ \t]*(?:- )?["']?([A-Za-z_.][\w.-]*)["']?[ \t]*(?::[ \t]|=[ \t])[ \t]*` +
			`("[^"\n]*"|'[^'\n]*'|[^\s"'|>&*!#{\[][^\n#]*)`)},
	{nil, secretWords, regexp.MustCompile(`(?:^|[\s,{(\[])\\?["']?([A-Za-z_.][\w.-]*)\\?["']?[ \t]*:[ \t]*` +
		`("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\\"[^"\n]*\\"|[^\s"',;|>&*!#{}\[\]()\\]+)`)},
	// environment variables as Kubernetes writes them
	{nil, secretWords,
		regexp.MustCompile(`\bname\\?["']?\s*[:=]\s*\\?["']?([\w.-]+)\\?["']?\s*,?\s*` +
			`\\?["']?value\\?["']?\s*[:=]\s*\\?("[^"\n]*"|'[^'\n]*'|[^\s,}#"'\\]+)`)},
	// passwords in the arguments or the standard input of commands
	{regexp.MustCompile(`\b(?:login|sshpass|az|zip|mysql\w*|mariadb)\b` + arguments), []string{"-p"},
		regexp.MustCompile(`(?:^|[ \t])-[pP][ \t=]*` + shellValue)},
	{nil, []string{"-u", "--user", "creds", "--proxy-user"},
		regexp.MustCompile(`(?:^|[ \t])(?:-[uU]|--(?:proxy-)?user|--(?:[a-z]+-)?creds)[ \t=]*` +
			`["']?[^\s:'"=/]+:([^\s'"]+)`)},
	{regexp.MustCompile(`\bhttps?\b[ \t]` + arguments), []string{"-a"},
		regexp.MustCompile(`[ \t]-a[ \t]+["']?[^\s:'"=/]+:([^\s'"]+)`)},
	{nil, []string{"pass:"}, regexp.MustCompile(`\bpass:` + shellValue)},
	{nil, []string{"echo", "printf"},
		regexp.MustCompile(`\b(?:echo|printf)(?:[ \t]+-[a-zA-Z]+|[ \t]+["']?%s(?:\\n)?["']?)*[ \t]+` + shellValue +
			`[ \t]*\|[^\n]*(?:stdin|login|secret|passw|token|base64|htpasswd)`)},
	{nil, []string{"<<<"}, regexp.MustCompile(`(?:stdin|login|secret|passw|token|base64)[^\n]*<<<[ \t]*` + shellValue)},
	{nil, []string{"<<<"}, regexp.MustCompile(`\bread\b[^\n<;|&]*?[ \t]([A-Za-z_]\w*)[ \t]*<<<[ \t]*` + shellValue)},
	{nil, []string{"stdin"}, regexp.MustCompile(`-stdin[^\n<]*<<-?[ \t]*["']?\w+["']?[^\n]*\n[ \t]*([^\n]+)`)},
	// kubectl create secret --from-literal, whatever the key is called
	{regexp.MustCompile(`\bcreate[\s\\]+secret\b` + arguments), []string{"literal"},
		regexp.MustCompile(`--from-literal[ \t=]+[^\s='"]+=` + shellValue)},
	{regexp.MustCompile(`\bcreate[\s\\]+secret\b` + arguments), []string{"literal"},
		regexp.MustCompile(`--from-literal[ \t=]+"[^="\n]+=([^"\n]*)"`)},
	{regexp.MustCompile(`\bcreate[\s\\]+secret\b` + arguments), []string{"literal"},
		regexp.MustCompile(`--from-literal[ \t=]+'[^='\n]+=([^'\n]*)'`)},
}

// secretElement matches the name of an environment variable in Helm flags: driver.env[0].name=TOKEN.
var secretElement = regexp.MustCompile(`([\w.-]+\[[0-9]+\]\.)name=["']?([\w.-]+)`)

// find calls visit with the bounds of each secret in the text.
func find(text string, visit func(start, end int)) {
	lower := strings.ToLower(text)
	for _, p := range places {
		if !slices.ContainsFunc(p.needs, func(word string) bool { return strings.Contains(lower, word) }) {
			continue
		}
		parts := [][]int{{0, len(text)}}
		if p.scope != nil {
			parts = p.scope.FindAllStringIndex(text, -1)
		}
		for _, part := range parts {
			p.find(text[part[0]:part[1]], func(start, end int) { visit(part[0]+start, part[0]+end) })
		}
	}
	if !strings.Contains(lower, "].name=") {
		return
	}
	for _, m := range secretElement.FindAllStringSubmatch(text, -1) {
		if IsSecretName(m[2]) {
			value := place{pattern: regexp.MustCompile(regexp.QuoteMeta(m[1]) + `value=((?:\\.|[^\s,"'])+)`)}
			value.find(text, visit)
		}
	}
}

// find calls visit with the bounds of each secret at this place. If the name before a value is not the name of a
// secret, the search continues after the name.
func (p *place) find(text string, visit func(start, end int)) {
	for at := 0; at < len(text); {
		m := p.pattern.FindStringSubmatchIndex(text[at:])
		if m == nil {
			return
		}
		n := len(m)
		start, end, next := at+m[n-2], at+m[n-1], at+m[n-1]
		switch {
		case n > 4 && !IsSecretName(text[at+m[2]:at+m[3]]):
			next = max(at+m[3], at+1)
		default:
			for end-start >= 2 && (text[start] == '"' || text[start] == '\'') && text[end-1] == text[start] {
				start, end = start+1, end-1
			}
			if isSecretValue(text[start:end]) {
				visit(start, end)
			}
		}
		at = max(next, at+1)
	}
}

var (
	// notSecret matches values that are not secrets: placeholders, booleans and ordinary words.
	notSecret = regexp.MustCompile(`(?i)^(\\?\$[{(]?[a-z_@].*|%.*%|<.*>|\*+|.*\{\{.*|` +
		`true|false|yes|no|null|none|nil|not|is|a|an|the|\||>|[|>][-+]|"|'|\\|,)$`)
	numbers = regexp.MustCompile(`^[0-9]{1,6}$`)
)

func isSecretValue(value string) bool {
	value = strings.TrimSpace(value)
	return value != "" && !notSecret.MatchString(value) && !numbers.MatchString(value)
}

// Learn adds the values that are secrets according to their names or their places in a text.
func (s *Secrets) Learn(text string) {
	find(text, func(start, end int) {
		if !isProse(text, start, end) {
			s.Add(text[start:end])
		}
	})
}

// plainWord matches a word of a sentence.
var plainWord = regexp.MustCompile(`^[a-z]{1,12}$`)

// isProse reports whether a part of the text is a word of a sentence in a comment.
func isProse(text string, start, end int) bool {
	line := strings.TrimLeft(text[strings.LastIndexByte(text[:start], '\n')+1:start], " \t")
	after := strings.TrimPrefix(text[end:], " ")
	return strings.HasPrefix(line, "#") && plainWord.MatchString(text[start:end]) &&
		len(after) < len(text[end:]) && after != "" && 'a' <= after[0] && after[0] <= 'z'
}

// maxDocument limits the size of the texts that LearnYAML parses, in bytes.
const maxDocument = 8 << 20

// LearnYAML adds the secrets in YAML or JSON documents, and those that Learn finds in their text. Documents after an
// invalid one are only searched as text.
func (s *Secrets) LearnYAML(data []byte) {
	text := string(data)
	s.Learn(text)
	lower := strings.ToLower(text)
	if len(data) > maxDocument ||
		!slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(lower, word) }) {
		return
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
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
	switch tree := tree.(type) {
	case []any:
		for i, item := range tree {
			if i > 0 && isSecretFlag(tree[i-1]) {
				s.addAll(item, 0)
			}
			s.LearnTree(item)
		}
	case map[string]any:
		for key, value := range tree {
			if isSecretKey(tree, key) {
				s.addAll(value, 0)
			}
			if key == "secretGenerator" {
				s.literals(value)
			}
			s.LearnTree(value)
		}
	case string:
		s.Learn(tree)
	}
}

// isSecretKey reports whether the value of a key in a mapping is secret: the data of a Secret, the value of a variable
// with the name of a secret, or a key with such a name.
func isSecretKey(mapping map[string]any, key string) bool {
	name, _ := mapping["name"].(string)
	return IsSecretName(key) || key == "value" && IsSecretName(name) ||
		(key == "data" || key == "stringData") && mapping["kind"] == "Secret"
}

// isSecretFlag reports whether the next argument after this one is secret.
func isSecretFlag(argument any) bool {
	text, _ := argument.(string)
	name, isFlag := strings.CutPrefix(text, "--")
	return isFlag && IsSecretName(name)
}

// MaskTree returns a copy of decoded YAML or JSON in which *** replaces the secrets that LearnTree finds by their
// names. It also replaces short numbers and booleans, which LearnTree ignores because they occur elsewhere too.
func MaskTree(tree any) any { return maskTree(tree, false) }

func maskTree(tree any, isSecret bool) any {
	switch tree := tree.(type) {
	case nil:
		return nil
	case []any:
		masked := make([]any, len(tree))
		for i, item := range tree {
			masked[i] = maskTree(item, isSecret || i > 0 && isSecretFlag(tree[i-1]))
		}
		return masked
	case map[string]any:
		masked := map[string]any{}
		for key, value := range tree {
			masked[key] = maskTree(value, isSecret && !isHarmless(key) || isSecretKey(tree, key))
		}
		return masked
	}
	if isSecret && tree != "" {
		return "***"
	}
	return tree
}

// harmlessKeys lists keys inside a secret whose values are not secret.
var harmlessKeys = []string{"name", "key", "namespace", "kind", "path", "user", "server", "host", "registry", "email"}

func isHarmless(key string) bool {
	key = strings.ToLower(key)
	return slices.Contains(harmlessKeys, key) || aboutSecret.MatchString(key)
}

// addAll adds the strings and numbers in a value, except those below keys that hold no secret. If a string is base64,
// the decoded text is added too.
func (s *Secrets) addAll(value any, depth int) {
	switch value := value.(type) {
	case string:
		s.Add(value)
		if decoded, err := base64.StdEncoding.DecodeString(value); err == nil && utf8.Valid(decoded) {
			s.Add(string(decoded))
		}
	case int, int64, float64:
		data, _ := json.Marshal(value)
		s.Add(string(data))
	case []any:
		for _, item := range value {
			s.addAll(item, depth+1)
		}
	case map[string]any:
		for name, inner := range value {
			if depth < 8 && !isHarmless(name) {
				s.addAll(inner, depth+1)
			}
		}
	}
}

// literals adds the literals of Kustomize's secretGenerators.
func (s *Secrets) literals(generators any) {
	list, _ := generators.([]any)
	for _, g := range list {
		generator, _ := g.(map[string]any)
		literals, _ := generator["literals"].([]any)
		for _, l := range literals {
			text, _ := l.(string)
			_, value, _ := strings.Cut(text, "=")
			s.Add(strings.Trim(value, `"'`))
		}
	}
}

// Add adds a secret. If it has several lines, each line of at least eight bytes is added too. Add ignores placeholders,
// booleans, short numbers, a few ordinary words, and values of fewer than four bytes.
func (s *Secrets) Add(value string) {
	value = strings.TrimSpace(value)
	if strings.Contains(value, "\n") {
		for line := range strings.Lines(value) {
			if len(strings.TrimSpace(line)) >= 8 {
				s.Add(line)
			}
		}
	}
	if len(value) < 4 || slices.Contains(*s, value) || !isSecretValue(value) {
		return
	}
	*s = append(*s, value)
	if quoted := strings.Trim(strconv.Quote(value), `"`); quoted != value {
		*s = append(*s, quoted)
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
	var bounds [][2]int
	find(text, func(start, end int) { bounds = append(bounds, [2]int{start, end}) })
	slices.SortFunc(bounds, func(a, b [2]int) int {
		if a[0] != b[0] {
			return a[0] - b[0]
		}
		return b[1] - a[1]
	})
	var out strings.Builder
	at := 0
	for _, b := range bounds {
		if b[0] >= at {
			out.WriteString(text[at:b[0]] + "***")
		}
		at = max(at, b[1])
	}
	if at == 0 {
		return text
	}
	return out.String() + text[at:]
}

// Mask masks the secrets in the title and in all findings. It removes source lines that contain a secret.
func (r *Report) Mask(s Secrets) {
	r.Title = s.Mask(r.Title)
	var line string // the latest line, which the findings of a long command share
	var hasSecret bool
	for i := range r.Findings {
		f := &r.Findings[i]
		for _, text := range []*string{&f.Subject, &f.Reason, &f.Together, &f.Fix, &f.Evidence.Object,
			&f.Evidence.Text} {
			*text = s.Mask(*text)
		}
		if f.Text != line {
			line, hasSecret = f.Text, s.Mask(f.Text) != f.Text
		}
		if hasSecret {
			f.Text = "" // the caret below a masked line would be at the wrong place
		}
	}
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// ReplaceJSON replaces the secrets in the strings of a JSON document with ***. A string that equals keep, ignoring
// trailing newlines, is left unchanged.
func (s Secrets) ReplaceJSON(data []byte, keep string) []byte {
	if len(s) == 0 {
		return data
	}
	return jsonString.ReplaceAllFunc(data, func(literal []byte) []byte {
		var text string
		isKept := func() bool { return keep != "" && strings.TrimRight(text, "\n") == strings.TrimRight(keep, "\n") }
		if json.Unmarshal(literal, &text) != nil || isKept() {
			return literal
		}
		masked := s.Replace(text)
		if masked == text {
			return literal
		}
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(masked) // encoding a string cannot fail
		return bytes.TrimSpace(out.Bytes())
	})
}
