package lint

import "regexp"

// secrets are the places of a script in which passwords and tokens stand: the value is the second
// group.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(--(?:[a-z]+-)*(?:password|token|api-key|secret)(?:=|[ \t]+))("[^"$]*"|'[^'$]*'|[^\s'"$][^\s'"]*)`),
	regexp.MustCompile(`(?i)((?:^|[\s'".,])[\w.-]*(?:password|passwd|token|api_?key|secret_?key|client_?secret)=)("[^"$]+"|[^\s'",;&|$]+)`),
	regexp.MustCompile(`()(\bnvapi-[A-Za-z0-9_-]{16,})`),
}

// Mask writes *** for the passwords and tokens in a script. Names of Secrets and variables stay.
func Mask(script string) string {
	for _, s := range secrets {
		script = s.ReplaceAllString(script, "$1***")
	}
	return script
}
