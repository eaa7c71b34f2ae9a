package server

import "strings"

// acceptsGzip reports whether the values of an Accept-Encoding header accept gzip, by name or by "*", with a weight
// above zero (RFC 9110, section 12.5.3). It does not allocate.
func acceptsGzip(values []string) bool {
	wildcard := false
	for _, value := range values {
		for value != "" {
			var element string
			element, value, _ = strings.Cut(value, ",")
			coding, weight, weighted := strings.Cut(element, ";")
			refused := weighted && isZero(strings.Trim(weight, " \t"))
			switch coding = strings.Trim(coding, " \t"); {
			case strings.EqualFold(coding, "gzip"):
				return !refused
			case coding == "*":
				wildcard = !refused
			}
		}
	}
	return wildcard
}

// isZero reports whether a weight is zero: "q=0", with or without decimals.
func isZero(weight string) bool {
	return len(weight) > len("q=") && strings.EqualFold(weight[:2], "q=") && strings.Trim(weight[2:], "0.") == ""
}
