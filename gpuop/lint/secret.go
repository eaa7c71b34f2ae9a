package lint

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// secrets are the places of passwords and tokens in a script: the value is the second group.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(--(?:[a-z]+-)*(?:password|token|api-key|secret)(?:=|[ \t]+))("[^"$]*"|'[^'$]*'|[^\s'"$][^\s'"]*)`),
	regexp.MustCompile(`(?i)((?:^|[\s'".,])[\w.-]*(?:password|passwd|token|api_?key|secret_?key|client_?secret)=)("[^"$]+"|[^\s'",;&|$]+)`),
	regexp.MustCompile(`(?i)()(\bBearer [A-Za-z0-9._~+/=-]{8,})`),
	regexp.MustCompile(`()(\bnvapi-[A-Za-z0-9_-]{16,})`),
	regexp.MustCompile(`(://[^\s/@:'"]+:)([^\s/@'"$]+)@`),
}

const secretWord = `(?:password|passwd|token|api_?key|secret|credentials?|private_?key)`

var (
	// secretKey is a line of YAML, HCL or a list of variables whose name says that its value is a secret.
	secretKey = regexp.MustCompile(`(?im)^[ \t]*(?:- )?(?:export )?["']?[\w.-]*` + secretWord + `s?["']?[ \t]*[:=][ \t]*("[^"\n]*"|'[^'\n]*'|[^\s#,;}\]]+)`)
	// secretPair is an environment variable with its value, as Kubernetes writes them.
	secretPair = regexp.MustCompile(`(?i)\bname["']?\s*[:=]\s*["']?[\w.-]*` + secretWord + `s?["']?\s*,?\s*["']?value["']?\s*[:=]\s*("[^"\n]*"|'[^'\n]*'|[^\s,}#]+)`)
	// secretElement is the name of an environment variable among the flags of helm.
	secretElement = regexp.MustCompile(`(?i)([\w.-]+\[[0-9]+\]\.)name=["']?[\w.-]*` + secretWord)
)

// Mask writes *** for the passwords and tokens in a script. Names of Secrets and variables stay.
func Mask(script string) string {
	all := secretsIn(script)
	for _, s := range secrets {
		script = s.ReplaceAllStringFunc(script, func(found string) string {
			m := s.FindStringSubmatchIndex(found)
			return found[:m[4]] + "***" + found[m[5]:]
		})
	}
	return replaceSecrets(script, all)
}

// secretsIn are the values in a text whose names say that they are secrets.
func secretsIn(text string) []string {
	var out []string
	for _, expression := range []*regexp.Regexp{secretKey, secretPair} {
		for _, m := range expression.FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
	}
	for _, s := range secrets {
		for _, m := range s.FindAllStringSubmatch(text, -1) {
			out = append(out, m[2])
		}
	}
	for _, m := range secretElement.FindAllStringSubmatch(text, -1) {
		for rest := text; ; {
			_, after, found := strings.Cut(rest, m[1]+"value=")
			if !found {
				break
			}
			value := strings.TrimLeft(after, `"'`)
			if end := strings.IndexAny(value, " \t\n,\"'"); end >= 0 {
				value = value[:end]
			}
			out = append(out, value)
			rest = after
		}
	}
	return usable(out)
}

// usable are the secrets that can be told from words: no references, no names of types, not a few letters.
func usable(all []string) []string {
	var out []string
	for _, s := range all {
		s = strings.Trim(s, `"'`)
		if len(s) < 4 || strings.ContainsAny(s, "$<{") || slices.Contains([]string{"true", "false", "null", "none", "***"}, strings.ToLower(s)) {
			continue
		}
		out = append(out, s)
	}
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
		if value := fields.Text(e, "value"); value != "" {
			r.secrets = append(r.secrets, usable([]string{value})...)
		}
	}
}

// learn takes over the secrets of a text that is judged.
func (r *run) learn(text string) { r.secrets = append(r.secrets, secretsIn(text)...) }

// masked hides the secrets in what is said of the inputs.
func (r *run) masked(findings []report.Row) {
	slices.SortFunc(r.secrets, func(a, b string) int { return len(b) - len(a) })
	r.secrets = slices.Compact(r.secrets)
	for i := range findings {
		f := &findings[i]
		for _, text := range []*string{&f.Subject, &f.Reason, &f.Fix} {
			*text = replaceSecrets(*text, r.secrets)
		}
	}
}
