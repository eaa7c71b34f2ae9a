// Package recipes follows the worked examples of docs/contributing.md in a copy of the repository.
package recipes
