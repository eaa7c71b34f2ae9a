package report

import (
	"regexp"
	"slices"
	"strings"
)

const secretWord = `(?:password|passwd|token|api_?key|secret|credentials?|private_?key)`

// secretWords are in the names of secrets.
var secretWords = []string{"passw", "token", "secret", "credential", "apikey", "api_key", "api-key", "privatekey", "private_key"}

// secrets are the places of passwords and tokens in a text: the value is the group. A text without what a place needs, in
// lower case, is not searched for it.
var secrets = []struct {
	needs   []string
	pattern *regexp.Regexp
}{
	{secretWords, regexp.MustCompile(`(?i)--(?:[a-z]+-)*(?:password|token|api-key|secret)(?:=|[ \t]+)("[^"$]*"|'[^'$]*'|[^\s'"$][^\s'"]*)`)},
	{secretWords, regexp.MustCompile(`(?i)(?:^|[\s'".,])[\w.-]*(?:password|passwd|token|api_?key|secret_?key|client_?secret)=("[^"$]+"|[^\s'",;&|$]+)`)},
	{[]string{"bearer "}, regexp.MustCompile(`(?i)(\bBearer [A-Za-z0-9._~+/=-]{8,})`)},
	{[]string{"nvapi-"}, regexp.MustCompile(`(\bnvapi-[A-Za-z0-9_-]{16,})`)},
	{[]string{"://"}, regexp.MustCompile(`://[^\s/@:'"]+:([^\s/@'"$]+)@`)},
	// a line of YAML, HCL or a list of variables whose name says that its value is a secret
	{secretWords, regexp.MustCompile(`(?im)^[ \t]*(?:- )?(?:export )?["']?[\w.-]*` + secretWord + `s?["']?[ \t]*[:=][ \t]*("[^"\n]*"|'[^'\n]*'|[^\s#,;}\]]+)`)},
	// an environment variable with its value, as Kubernetes writes them
	{secretWords, regexp.MustCompile(`(?i)\bname["']?\s*[:=]\s*["']?[\w.-]*` + secretWord + `s?["']?\s*,?\s*["']?value["']?\s*[:=]\s*("[^"\n]*"|'[^'\n]*'|[^\s,}#]+)`)},
}

// secretElement is the name of an environment variable among the flags of helm: driver.env[0].name=TOKEN.
var secretElement = regexp.MustCompile(`(?i)([\w.-]+\[[0-9]+\]\.)name=["']?[\w.-]*` + secretWord)

// Secrets are the values that nothing printed may hold, the longest first. The zero value knows none.
type Secrets []string

// Learn takes over the values in a text whose names say that they are secrets. Names of Secrets and variables stay.
func (s *Secrets) Learn(text string) {
	lower := strings.ToLower(text)
	for _, p := range secrets {
		if slices.ContainsFunc(p.needs, func(word string) bool { return strings.Contains(lower, word) }) {
			s.learn(text, p.pattern)
		}
	}
	if !strings.Contains(lower, "].name=") {
		return
	}
	for _, m := range secretElement.FindAllStringSubmatch(text, -1) {
		s.learn(text, regexp.MustCompile(regexp.QuoteMeta(m[1])+`value=["']?([^\s,"']*)`))
	}
}

func (s *Secrets) learn(text string, pattern *regexp.Regexp) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		s.Add(m[1])
	}
}

// Add takes over a value, if it can be told from words: no reference, no name of a type, not a few letters.
func (s *Secrets) Add(value string) {
	value = strings.Trim(value, `"'`)
	if len(value) < 4 || slices.Contains(*s, value) || strings.ContainsAny(value, "$<{") || slices.Contains([]string{"true", "false", "null", "none"}, strings.ToLower(value)) {
		return
	}
	*s = append(*s, value)
	slices.SortFunc(*s, func(a, b string) int { return len(b) - len(a) })
}

// Mask writes *** in the places of the secrets.
func (s Secrets) Mask(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// Mask writes *** for the passwords and tokens in a text.
func Mask(text string) string {
	var s Secrets
	s.Learn(text)
	return s.Mask(text)
}
