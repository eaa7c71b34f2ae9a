// Package text finds the name that somebody probably meant. Messages about
// flags, fields, keys and nodes end with it, whoever writes them.
//
// It compares bytes, knows no dictionary, and never decides: what is unknown
// stays an error.
package text
