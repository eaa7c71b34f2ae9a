// Package explain says what a word means that a user meets while installing the GPU Operator: a
// label, a state, a key, a resource, an event's text, a component. For each word it knows who
// writes it, who reads it and where that is documented, and for an unknown one which known word is
// nearest.
//
// The glossary is words.txt, one word (with its other spellings) a line; MIG profiles, boards and
// config names come from package mig, keys of the operator's chart from package chart, the IDs of
// gpuop's own rows from package report.
//
// The package holds facts and no rules: what is right or wrong about a file is for the linters.
package explain
