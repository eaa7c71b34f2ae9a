package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// OperandTolerations returns what the operands tolerate with a list of daemonsets.tolerations. An empty
// list leaves them those of their own manifests (applyCommonDaemonsetConfig in
// controllers/object_controls.go, and assets/ of gpu-operator v26.7.0).
func OperandTolerations(list []corev1.Toleration) []corev1.Toleration {
	if len(list) == 0 {
		return []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoSchedule}}
	}
	return list
}

// Covered reports whether a taint keeps no pod with the tolerations away. PreferNoSchedule never does.
func Covered(tolerations []corev1.Toleration, taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectPreferNoSchedule ||
		slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
			// the API server refuses an empty key without Exists, and a value beside Exists
			valid := t.Key != "" && t.Operator != corev1.TolerationOpExists ||
				t.Operator == corev1.TolerationOpExists && t.Value == ""
			return valid && t.ToleratesTaint(klog.Background(), &taint, false)
		})
}
