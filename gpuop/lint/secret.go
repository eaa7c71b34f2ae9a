package lint

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

const secretWord = `(?:password|passwd|token|api_?key|secret|credentials?|private_?key)`

// secrets are the places of passwords and tokens in a text: the value is the group.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(?i)--(?:[a-z]+-)*(?:password|token|api-key|secret)(?:=|[ \t]+)("[^"$]*"|'[^'$]*'|[^\s'"$][^\s'"]*)`),
	regexp.MustCompile(`(?i)(?:^|[\s'".,])[\w.-]*(?:password|passwd|token|api_?key|secret_?key|client_?secret)=("[^"$]+"|[^\s'",;&|$]+)`),
	regexp.MustCompile(`(?i)(\bBearer [A-Za-z0-9._~+/=-]{8,})`),
	regexp.MustCompile(`(\bnvapi-[A-Za-z0-9_-]{16,})`),
	regexp.MustCompile(`://[^\s/@:'"]+:([^\s/@'"$]+)@`),
	// a line of YAML, HCL or a list of variables whose name says that its value is a secret
	regexp.MustCompile(`(?im)^[ \t]*(?:- )?(?:export )?["']?[\w.-]*` + secretWord + `s?["']?[ \t]*[:=][ \t]*("[^"\n]*"|'[^'\n]*'|[^\s#,;}\]]+)`),
	// an environment variable with its value, as Kubernetes writes them
	regexp.MustCompile(`(?i)\bname["']?\s*[:=]\s*["']?[\w.-]*` + secretWord + `s?["']?\s*,?\s*["']?value["']?\s*[:=]\s*("[^"\n]*"|'[^'\n]*'|[^\s,}#]+)`),
}

// secretElement is the name of an environment variable among the flags of helm: driver.env[0].name=TOKEN.
var secretElement = regexp.MustCompile(`(?i)([\w.-]+\[[0-9]+\]\.)name=["']?[\w.-]*` + secretWord)

// Mask writes *** for the passwords and tokens in a script. Names of Secrets and variables stay.
func Mask(script string) string { return replaceSecrets(script, secretsIn(script)) }

// secretsIn are the values in a text whose names say that they are secrets, the longest first.
func secretsIn(text string) []string {
	all := slices.Clone(secrets)
	for _, m := range secretElement.FindAllStringSubmatch(text, -1) {
		all = append(all, regexp.MustCompile(regexp.QuoteMeta(m[1])+`value=["']?([^\s,"']*)`))
	}
	var out []string
	for _, s := range all {
		for _, m := range s.FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
	}
	return usable(out)
}

// usable are the secrets that can be told from words: no references, no names of types, not a few letters.
func usable(all []string) (out []string) {
	for _, s := range all {
		s = strings.Trim(s, `"'`)
		if len(s) >= 4 && !strings.ContainsAny(s, "$<{") && !slices.Contains([]string{"true", "false", "null", "none"}, strings.ToLower(s)) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

func replaceSecrets(text string, all []string) string {
	for _, s := range all {
		text = strings.ReplaceAll(text, s, "***")
	}
	return text
}

// sensitive takes over the values of a set_sensitive block or list of Terraform.
func (r *run) sensitive(n *yaml.Node) {
	for _, e := range append(fields.Items(n), n) {
		r.secrets = append(r.secrets, usable([]string{fields.Text(e, "value")})...)
	}
}

// learn takes over the secrets of a text that is judged.
func (r *run) learn(text string) { r.secrets = append(r.secrets, secretsIn(text)...) }

func (r *run) masked(text string) string { return replaceSecrets(text, r.secrets) }
