// Package architecture tests the structure of the repository: which packages may import which, which package owns an
// external dependency, and what no file may do. The tests read source files and run none of the code.
package architecture
