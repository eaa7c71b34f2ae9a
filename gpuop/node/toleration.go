package node

// A Toleration of a pod, as its manifest writes it.
type Toleration struct{ Key, Operator, Value, Effect string }

// Tolerates follows the scheduler: an empty key tolerates all keys, an empty effect all effects.
func (t Toleration) Tolerates(n Taint) bool {
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
	if n.Effect == "PreferNoSchedule" {
		return true
	}
	for _, t := range tolerations {
		if t.Tolerates(n) {
			return true
		}
	}
	return false
}
