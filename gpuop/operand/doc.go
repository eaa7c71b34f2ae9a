// Package operand says which operands of the GPU Operator are ready on a node, from the files that
// its validator leaves in /run/nvidia/validations: an empty file for each operand that passed, and
// two files with content.
//
// The validator deletes an operand's file before it checks it, so that a missing file is an operand
// that is not ready, one that was never enabled, or one that is being checked. What cannot be
// distinguished is Unknown.
//
// gpuop node and the exporter's gpu_operator_operand_ready share it. It imports nothing of either, keeps
// no state and writes nothing.
package operand
