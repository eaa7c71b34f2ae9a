// Package architecture holds the tests of the house itself: which package may import which, who
// owns a door to the outside, and what no file may do. They read the tree; they run nothing of it.
package architecture
