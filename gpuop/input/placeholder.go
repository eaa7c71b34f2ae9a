package input

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// The characters that stand for < and > of a placeholder, and for what the shell would read inside,
// while a script is parsed: each is one byte, so that every place in the script stays where it is.
const (
	maskOpen  = "\x01"
	maskClose = "\x02"
	// unescape stands for the backslash that a shell takes away from the text of another.
	unescape = "\x06"
)

var (
	mask   = strings.NewReplacer("<", maskOpen, ">", maskClose, " ", "\x03", "'", "\x04", "|", "\x05")
	unmask = strings.NewReplacer(maskOpen, "<", maskClose, ">", "\x03", " ", "\x04", "'", "\x05", "|", unescape, "")

	maskedPlaceholder = regexp.MustCompile(maskOpen + "[^" + maskClose + "]*" + maskClose)
)

// placeholder is a word, or some, between angle brackets: what an article has for its reader to
// fill in. The character before says that no redirection of a file is meant: << and 2<.
var placeholder = regexp.MustCompile(`(^|[\s='"/,:@{-])(<[A-Za-z][A-Za-z0-9_. ,:/|'-]{0,120}[A-Za-z0-9_.']>|<[A-Za-z]>)([\s='"/,:@.}-]|$)`)

// redirected ends what is no placeholder but two redirections: <input 2>errors.
var redirected = regexp.MustCompile(` [0-9]>$`)

// maskPlaceholders hides the placeholders of a script from the parser of the shell, to which they
// are a file to read and one to write. The text keeps its length. Nothing is masked in a script that
// has one of the masking characters itself.
func maskPlaceholders(text string) (out string, masked bool) {
	if strings.ContainsAny(text, "\x01\x02\x03\x04\x05"+unescape) {
		return text, false
	}
	var b strings.Builder
	for {
		at := placeholder.FindStringSubmatchIndex(text)
		if at == nil {
			return b.String() + text, masked
		}
		start, end := at[4], at[5]
		b.WriteString(text[:start])
		if found := text[start:end]; redirected.MatchString(found) {
			b.WriteString(found)
		} else {
			b.WriteString(mask.Replace(found))
			masked = true
		}
		text = text[end:]
	}
}

// unmask gives back what maskPlaceholders hid in a part of the script.
func (r *scriptReader) unmask(text string) string {
	if !r.masked {
		return text
	}
	return unmask.Replace(text)
}

// placeholder returns the placeholder that a word has outside of quotes, or "".
func (r *scriptReader) placeholder(w *syntax.Word) string {
	for _, p := range w.Parts {
		if lit, ok := p.(*syntax.Lit); ok && r.masked && strings.Contains(lit.Value, maskOpen) {
			return r.unmask(maskedPlaceholder.FindString(lit.Value))
		}
	}
	return ""
}
