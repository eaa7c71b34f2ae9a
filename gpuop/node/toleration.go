package node

import "slices"

// A Toleration of a pod, as its manifest writes it.
type Toleration struct{ Key, Operator, Value, Effect string }

// tolerates follows the scheduler: an empty key tolerates all keys, an empty effect all effects.
func (t Toleration) tolerates(n Taint) bool {
	if t.Effect != "" && t.Effect != n.Effect || t.Key != "" && t.Key != n.Key {
		return false
	}
	switch t.Operator {
	case "Exists":
		return t.Value == ""
	case "", "Equal":
		return t.Key != "" && t.Value == n.Value
	}
	return false
}

// OperandTolerations returns what the operands tolerate with a list of daemonsets.tolerations. An empty
// list leaves them those of their own manifests (applyCommonDaemonsetConfig in
// controllers/object_controls.go, and assets/ of gpu-operator v26.7.0).
func OperandTolerations(list []Toleration) []Toleration {
	if len(list) == 0 {
		return []Toleration{{Key: "nvidia.com/gpu", Operator: "Exists", Effect: "NoSchedule"}}
	}
	return list
}

// Covered reports whether a taint keeps no pod with the tolerations away. PreferNoSchedule never does.
func Covered(tolerations []Toleration, n Taint) bool {
	return n.Effect == "PreferNoSchedule" ||
		slices.ContainsFunc(tolerations, func(t Toleration) bool { return t.tolerates(n) })
}
