package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Owns returns how many names of the path an entry of managedFields owns: all where it owns the field or one below it,
// fewer where it owns a group above the field as one value, 0 where it owns neither.
func Owns(e metav1.ManagedFieldsEntry, path ...string) int {
	var fields fieldpath.Set
	if e.FieldsV1 == nil || fields.FromJSON(e.FieldsV1.GetRawReader()) != nil {
		return 0
	}
	at := &fields
	for i, name := range path {
		element := fieldpath.PathElement{FieldName: &name}
		below, found := at.Children.Get(element)
		switch {
		case found:
			at = below
		case at.Members.Has(element):
			return i + 1
		default:
			return 0
		}
	}
	return len(path)
}
