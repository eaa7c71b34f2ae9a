package dcgm

// ErrorName is errorName.
func ErrorName(code uint32) string { return errorName(code) }
