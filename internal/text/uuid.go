package text

import "strings"

// IsUUID reports whether s is 8-4-4-4-12 hexadecimal digits (RFC 9562).
func IsUUID(s string) bool {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	return strings.Trim(s[:8]+s[9:13]+s[14:18]+s[19:23]+s[24:], "0123456789abcdefABCDEF") == ""
}
