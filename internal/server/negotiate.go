package server

import "strings"

// acceptsGzip reports whether a client prefers gzip to the plain page, from the values of its
// Accept-Encoding header (RFC 9110, section 12.5.3): if it names gzip, or everything, with a weight
// above zero that is not below that of an identity it names. What cannot be read is as if it were
// not there. It allocates nothing.
func acceptsGzip(values []string) bool {
	const unnamed = -1
	gzip, identity, wildcard := unnamed, unnamed, unnamed
	for _, value := range values {
		for value != "" {
			var element string
			element, value, _ = strings.Cut(value, ",")
			coding, parameters, weighted := strings.Cut(element, ";")
			weight := 1000
			if weighted {
				if weight = qvalue(parameters); weight < 0 {
					continue
				}
			}
			switch coding = strings.Trim(coding, " \t"); {
			case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"):
				gzip = max(gzip, weight)
			case strings.EqualFold(coding, "identity"):
				identity = max(identity, weight)
			case coding == "*":
				wildcard = max(wildcard, weight)
			}
		}
	}
	if gzip == unnamed {
		gzip = wildcard
	}
	return gzip > 0 && gzip >= identity
}

// qvalue returns the weight in "q=0.5" in thousandths, or -1 if it is none: 0 or 1 with up to three
// decimals, the latter zeros.
func qvalue(s string) int {
	s = strings.Trim(s, " \t")
	if len(s) < 3 || s[0] != 'q' && s[0] != 'Q' || s[1] != '=' || len(s) > len("q=0.000") {
		return -1
	}
	s = s[2:]
	if s[0] != '0' && s[0] != '1' || len(s) > 1 && s[1] != '.' {
		return -1
	}
	weight, unit := 1000*int(s[0]-'0'), 100
	for i := 2; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		weight += int(s[i]-'0') * unit
		unit /= 10
	}
	if weight > 1000 {
		return -1
	}
	return weight
}
