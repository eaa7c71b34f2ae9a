package chart

import "testing"

func TestTablesParse(t *testing.T) {
	if _, err := parse(); err != nil {
		t.Fatal(err)
	}
}
